"""What is drawn of a graph, against autograd's own numbers."""

import pytest
import torch

from gradscope.errors import GradscopeError
from gradscope.report.graph.part import GraphOptions, graph_part


def labels(part, kind):
    return [vertex.label for vertex in part.vertices if vertex.kind == kind]


def test_each_operation_and_parameter_is_a_vertex_and_views_are_not(report):
    part = graph_part(report, GraphOptions())
    kinds = [node.kind for node in report.recording.nodes]
    assert len(labels(part, "operation")) == kinds.count("operation")
    assert set(labels(part, "parameter")) == {row.name for row in report.parameters}
    assert not labels(part, "view")


def test_views_are_vertices_when_asked_for(report):
    part = graph_part(report, GraphOptions(has_views=True))
    drawn = sum(len(vertex.nodes) for vertex in part.vertices)
    assert drawn == report.graph.nodes
    assert len(part.links) == report.graph.edges


def test_every_parameter_has_a_way_to_the_loss(report):
    part = graph_part(report, GraphOptions())
    ahead = {}
    for link in part.links:
        ahead.setdefault(link.source, set()).add(link.target)
    loss = next(vertex.index for vertex in part.vertices if vertex.label == "SumBackward0")
    for vertex in part.vertices:
        if vertex.kind == "parameter" and vertex.nodes:
            seen, pending = set(), [vertex.index]
            while pending:
                current = pending.pop()
                if current not in seen:
                    seen.add(current)
                    pending.extend(ahead.get(current, ()))
            assert loss in seen


def test_norms_on_edges_are_those_of_the_gradients(report):
    part = graph_part(report, GraphOptions())
    norms = {row.name: row.grad.norm for row in report.parameters if row.grad}
    positions = {vertex.index: vertex for vertex in part.vertices}
    for link in part.links:
        source = positions[link.source]
        if source.kind == "parameter":
            assert link.grad_norm == pytest.approx(norms[source.label])
    (last,) = [link for link in part.links if positions[link.target].label == "SumBackward0"]
    # The gradient of a sum over two outputs is all ones.
    assert last.grad_norm == pytest.approx(float(torch.ones(2).norm()))


def test_depth_folds_modules_into_one_vertex_each(report):
    part = graph_part(report, GraphOptions(depth=1))
    assert labels(part, "module") == ["blocks", "head", "unused"]
    assert part.folded_modules == 2
    assert part.folded_nodes + len(labels(part, "operation")) <= report.graph.nodes
    assert part.folded.startswith(f"… {part.folded_nodes} nodes folded into 2 modules")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13, 20])
def test_cap_is_kept_by_folding_the_deepest_first(report, most):
    part = graph_part(report, GraphOptions(max_nodes=most))
    assert sum(1 for vertex in part.vertices if vertex.nodes) <= most
    depths = {row.path: row.depth for row in report.modules}
    folded = labels(part, "module")
    assert len({depths[path] for path in folded}) == 1


def test_wide_cap_folds_nothing(report):
    part = graph_part(report, GraphOptions(max_nodes=10_000))
    assert part.folded is None


def test_module_alone_has_its_surroundings_as_two_vertices(report):
    part = graph_part(report, GraphOptions(module="blocks.1"))
    assert sorted(labels(part, "outside")) == ["after", "before"]
    assert {name.rpartition(".")[0] for name in labels(part, "parameter")} == {
        "blocks.1.norm",
        "blocks.1.linear",
    }


def test_parameters_that_backward_does_not_lead_to_are_there_without_nodes(report):
    part = graph_part(report, GraphOptions())
    lost = {v.label: v.reach for v in part.vertices if v.kind == "parameter" and not v.nodes}
    assert lost == {"unused.weight": "none", "unused.bias": "none", "head.bias": "frozen"}


def test_unknown_module_is_an_error(report):
    with pytest.raises(GradscopeError, match="no module `block`"):
        graph_part(report, GraphOptions(module="block"))
