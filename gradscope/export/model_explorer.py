"""The graph of a step for Model Explorer: operations in their modules, and their gradient norms."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from gradscope.analysis.recording_index import StepView, first_step
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.errors import GradscopeError
from gradscope.recording.records import CapturedStep, NodeRecord, Recording, TensorRef
from gradscope.recording.streaming import RunInFile
from gradscope.report.json.shape import Json
from gradscope.report.number_format import figure

GRAPH_FILE, NORMS_FILE = "graph.json", "gradient_norms.json"

_ID = "gradients"
_COLORS = ("#fff7bc", "#fee391", "#fec44f", "#fe9929", "#d95f0e")
"""Colours from the smallest norm to the largest, on a logarithmic scale."""
_ZERO, _BROKEN = "#c5b0d5", "#e31a1c"


def explorer_files(source: Report | RunInFile) -> dict[str, Json]:
    """Return the contents of the files by name: a graph, and its node data.

    Raises:
        GradscopeError: No step was captured in detail.
    """
    steps: Iterable[CapturedStep]
    if isinstance(source, RunInFile):
        recording, steps = source.structure, source.captured_steps()
    else:
        recording, steps = source.recording, source.recording.captured_steps
    view = _view(recording, steps)
    norms = {node.index: _norms(node, view) for node in view.nodes}
    name = recording.target.model or recording.target.name
    incoming = _incoming(view.recording)
    nodes: list[Json] = [
        _node(node, view, norms[node.index], incoming.get(node.index, [])) for node in view.nodes
    ]
    graph: dict[str, Json] = {"id": _ID, "nodes": nodes}
    results = dict(_results({node: max(of) for node, of in norms.items() if of}))
    return {
        GRAPH_FILE: {"label": name, "graphs": [graph]},
        NORMS_FILE: {_ID: {"name": "gradient norm", "results": results}},
    }


def _view(recording: Recording, steps: Iterable[CapturedStep]) -> StepView:
    """Return the judged step; of a run, the last one that was captured in detail."""
    view = first_step(recording)
    if view.nodes:
        return view
    last = None
    for step in steps:
        view = first_step(step.recording)
        last = view if view.nodes else last
    if last is not None:
        return last
    raise GradscopeError(
        "the recording has no step with all tensors, which Model Explorer would show",
        help="record one: gradscope run without --no-tensors, or gradscope inspect --save",
    )


def _norms(node: NodeRecord, view: StepView) -> list[float]:
    """Return the norms of the gradients of a node's outputs, NaN as infinity."""
    if node.parameter is not None:
        of = view.parameter_stats.get(node.parameter)
        found = [None if of is None or of.gradient is None else of.gradient.norm]
    else:
        stats = (
            view.tensor_stats.get(view.measured(TensorRef(node=node.index, slot=slot)))
            for slot in range(len(node.outputs))
        )
        found = [
            stat.gradient.norm for stat in stats if stat is not None and stat.gradient is not None
        ]
    # `max` may pass over NaN.
    return [math.inf if math.isnan(norm) else norm for norm in found if norm is not None]


def _incoming(recording: Recording) -> dict[int, list[Json]]:
    """Return the edges into each node: backward passes gradients against them."""
    found: defaultdict[int, list[Json]] = defaultdict(list)
    for edge in recording.edges:
        found[edge.source].append(
            {"sourceNodeId": str(edge.target), "sourceNodeOutputId": str(edge.slot)}
        )
    return found


def _node(
    node: NodeRecord, view: StepView, norms: list[float], incoming: list[Json]
) -> dict[str, Json]:
    recording = view.recording
    texts = _texts(node, view, norms)
    attributes: list[Json] = [{"key": key, "value": text} for key, text in texts]
    return {
        "id": str(node.index),
        "label": _label(node, recording),
        "namespace": _namespace(node, recording),
        "attrs": attributes,
        "incomingEdges": incoming,
    }


def _label(node: NodeRecord, recording: Recording) -> str:
    if node.parameter is not None:
        return recording.parameters[node.parameter].name.rpartition(".")[2]
    return node.operation.rstrip("0123456789").removesuffix("Backward")


def _namespace(node: NodeRecord, recording: Recording) -> str:
    """Return the path of the module that made a node, with a slash between its parts."""
    if node.parameter is not None:
        module = recording.parameters[node.parameter].module
    elif node.module_call is not None:
        module = recording.calls[node.module_call].module
    else:
        return ""
    return recording.modules[module].path.replace(".", "/")


def _texts(node: NodeRecord, view: StepView, norms: list[float]) -> Iterator[tuple[str, str]]:
    recording = view.recording
    shapes = [f"{one.dtype}{list(one.dims)}" for one in node.outputs if one is not None]
    site = None if node.site is None else recording.sites[node.site]
    if shapes:
        yield "shape", ", ".join(shapes)
    if norms:
        yield "gradient norm", ", ".join(map(figure, norms))
    if site is not None:
        yield "line", shown_site(site, recording.target.root)
        yield "code", site.source


def _results(norms: dict[int, float]) -> Iterable[tuple[str, Json]]:
    """Yield the number and the colour of each node; JSON has no infinity."""
    positive = [math.log10(norm) for norm in norms.values() if 0 < norm < math.inf]
    low, high = (min(positive), max(positive)) if positive else (0.0, 0.0)
    for node, norm in norms.items():
        if math.isinf(norm):
            yield str(node), {"value": "non-finite", "bgColor": _BROKEN}
        elif norm == 0:
            yield str(node), {"value": 0.0, "bgColor": _ZERO}
        else:
            # Equal norms span no range.
            share = (math.log10(norm) - low) / (high - low) if high > low else 0.5
            # The largest norm has a share of 1, which is one beyond the last colour.
            color = _COLORS[min(int(share * len(_COLORS)), len(_COLORS) - 1)]
            yield str(node), {"value": norm, "bgColor": color}
