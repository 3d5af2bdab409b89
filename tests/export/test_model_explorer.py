"""The graph for Model Explorer, with the real package."""

import json
import math
from dataclasses import replace

import pytest

from gradscope.errors import GradscopeError
from gradscope.export.model_explorer import explorer_files
from gradscope.export.plan import planned_export
from gradscope.export.table import Source
from gradscope.recording.store import save_recording
from gradscope.recording.streaming import RunInFile


@pytest.fixture(name="written")
def _written(inspected, tmp_path):
    """The two files of an inspection, read again."""
    plan = planned_export("model-explorer", str(tmp_path), None)
    plan.check(force=False, inputs=())
    plan.write(Source(run=None, load=lambda: inspected), None)
    assert [one.name for one in plan.files] == ["graph.json", "gradient_norms.json"]
    return [json.loads(one.read_text()) for one in plan.files]


def test_norms_are_those_of_the_parameters(inspected, written):
    graph, norms = written
    nodes = {node["id"]: node for node in graph["graphs"][0]["nodes"]}
    found = {}
    for key, result in norms["gradients"]["results"].items():
        node = nodes[key]
        found[f"{node['namespace'].replace('/', '.')}.{node['label']}"] = result["value"]
    learning = {one.name: one.grad.norm for one in inspected.parameters if one.grad is not None}
    assert learning
    assert {name: found[name] for name in learning} == pytest.approx(learning)


def test_operations_are_in_their_modules_and_follow_the_forward(written):
    nodes = {node["id"]: node for node in written[0]["graphs"][0]["nodes"]}
    tanh = next(node for node in nodes.values() if node["label"] == "Tanh")
    assert tanh["namespace"] == "used/1"
    (before,) = [nodes[edge["sourceNodeId"]] for edge in tanh["incomingEdges"]]
    assert (before["label"], before["namespace"]) == ("Addmm", "used/0")
    lines = {one["key"]: one["value"] for one in tanh["attrs"]}
    assert lines["shape"] == "float32[5, 3]"
    assert "conftest.py:" in lines["line"]


def test_package_reads_the_files(written):
    builder = pytest.importorskip("model_explorer.graph_builder")
    node_data = pytest.importorskip("model_explorer.node_data_builder")
    graph, norms = written
    (only,) = graph["graphs"]
    nodes = [
        builder.GraphNode(
            **{
                **node,
                "attrs": [builder.KeyValue(**one) for one in node["attrs"]],
                "incomingEdges": [builder.IncomingEdge(**one) for one in node["incomingEdges"]],
            }
        )
        for node in only["nodes"]
    ]
    read = builder.Graph(id=only["id"], nodes=nodes)
    known = {node.id for node in read.nodes}
    assert len(known) == len(read.nodes)
    assert all(edge.sourceNodeId in known for node in read.nodes for edge in node.incomingEdges)
    for name, data in norms.items():
        assert name == read.id
        results = {key: node_data.NodeDataResult(**one) for key, one in data.pop("results").items()}
        whole = node_data.GraphNodeData(results=results, **data)
        shown = json.loads(node_data.ModelNodeData(graphsData={name: whole}).to_json_string())
        assert set(shown[name]["results"]) <= known


def test_run_shows_its_last_captured_step(run_report):
    captured = run_report.recording.captured_steps[-1].recording
    nodes = explorer_files(run_report)["graph.json"]["graphs"][0]["nodes"]
    assert len(nodes) == len(captured.nodes)
    bare = replace(run_report, recording=replace(run_report.recording, captured_steps=()))
    with pytest.raises(GradscopeError, match="no step with all tensors"):
        explorer_files(bare)


def test_numbers_that_json_cannot_hold_are_named():
    from gradscope.export.model_explorer import _results

    found = dict(_results({0: math.inf, 1: 0.0, 2: 1e-3, 3: 10.0}))
    assert [one["value"] for one in found.values()] == ["non-finite", 0.0, 1e-3, 10.0]
    assert len({one["bgColor"] for one in found.values()}) == 4


@pytest.mark.parametrize(
    ("output", "table", "message"),
    [(None, None, "needs a folder"), ("-", None, "needs a folder"), ("x", "steps", "not tables")],
)
def test_wrong_output_is_an_error(output, table, message):
    with pytest.raises(GradscopeError, match=message):
        planned_export("model-explorer", output, table)


def test_a_run_in_its_file_gives_its_last_captured_step(tmp_path, run_report):
    save_recording(run_report.recording, tmp_path / "run.gradscope")
    found = explorer_files(RunInFile.of(tmp_path / "run.gradscope"))
    assert found == explorer_files(run_report)
    assert len(run_report.recording.captured_steps) > 1
