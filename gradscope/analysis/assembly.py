"""Joins a recording's records into the rows of a report, for the step that is judged."""

from collections import Counter

from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import StepView, created
from gradscope.analysis.rows import (
    GraphSummary,
    OtherStep,
    ParameterRow,
    Summary,
    TensorRow,
    WidestPoint,
)
from gradscope.recording.records import (
    ParameterRecord,
    Recording,
    Site,
    StepKind,
    TensorStat,
)

_NOT_SEEN = "no backward was measured"
_NOT_STEPPED = "no recorded optimizer step uses it"


def parameter_rows(view: StepView) -> tuple[ParameterRow, ...]:
    """Return a row for each parameter of the model."""
    depths = {node.parameter: node.depth for node in view.nodes if node.parameter is not None}
    uses, calls = _first_uses(view), _first_calls(view)
    return tuple(
        _parameter_row(
            view,
            parameter,
            depth=depths.get(parameter.index),
            use=uses.get(parameter.index) or calls.get(parameter.module),
        )
        for parameter in view.recording.parameters
    )


def _definition(recording: Recording, module: int | None) -> Site | None:
    """Return the line that defined a module, or the nearest module around it that has one."""
    while module is not None:
        record = recording.modules[module]
        if record.site is not None:
            return recording.sites[record.site]
        module = record.parent
    return None


def _first_uses(view: StepView) -> dict[int, Site]:
    """Return, by parameter, the line of the first operation of the forward that took it."""
    recording, members = view.recording, {node.index for node in view.nodes}
    uses = [
        (created(source), parameter, recording.sites[source.site])
        for edge in recording.edges
        if edge.source in members
        and (parameter := recording.nodes[edge.target].parameter) is not None
        and (source := recording.nodes[edge.source]).site is not None
    ]
    # A dict keeps the last of equal keys: sorted backwards, the earliest use is what remains.
    uses.sort(key=lambda use: use[0], reverse=True)
    return {parameter: site for _, parameter, site in uses}


def _first_calls(view: StepView) -> dict[int, Site]:
    """Return, by module, the line that called it first."""
    graph = view.step.graph if view.step else None
    return {
        call.module: view.recording.sites[call.site]
        # Backwards, for the same reason: the first call of a module overwrites the later ones.
        for call in reversed(view.recording.calls)
        if call.graph == graph and call.site is not None
    }


def _parameter_row(
    view: StepView, parameter: ParameterRecord, *, depth: int | None, use: Site | None
) -> ParameterRow:
    stat = view.parameter_stats.get(parameter.index)
    is_of_run = view.step is not None and view.step.kind == "run"
    return ParameterRow(
        index=parameter.index,
        name=parameter.name,
        aliases=parameter.aliases,
        module=view.recording.modules[parameter.module].path,
        use=use,
        definition=_definition(view.recording, parameter.module),
        shape=parameter.shape.dims,
        dtype=parameter.shape.dtype,
        device=parameter.device,
        numel=parameter.numel,
        requires_grad=parameter.requires_grad,
        # Missing is not zero: without a measurement, only what requires no grad is known to get
        # none.
        reach=stat.reach if stat else "unknown" if parameter.requires_grad else "frozen",
        reason=stat.reason if stat else _NOT_STEPPED if is_of_run else _NOT_SEEN,
        grad=stat.gradient if stat else None,
        weight_norm=stat.weight_norm if stat else None,
        update_norm=stat.update_norm if stat else None,
        optimizer_group=parameter.optimizer_group,
        depth=depth,
    )


def tensor_rows(view: StepView) -> tuple[TensorRow, ...]:
    """Return a row for each distinct tensor, in the order of the forward.

    Gradients of parameters are reported with the parameters alone.
    """
    nodes = view.recording.nodes
    casts = _parameter_views(view)
    rows = [
        _tensor_row(view, stat, is_parameter_view=stat.node in casts)
        for stat in view.tensor_stats.values()
        if nodes[stat.node].kind != "parameter" and nodes[stat.node].same_as is None
    ]
    # A leaf has no sequence number: the forward began at the farthest one from the loss.
    rows.sort(key=lambda row: (created(nodes[row.node]), -row.depth, row.node, row.slot))
    return tuple(rows)


def _parameter_views(view: StepView) -> set[int]:
    """Return the nodes that lead to a parameter alone, by way of views and casts alone."""
    nodes = view.recording.nodes
    found = {node.index for node in view.nodes if node.kind == "parameter"}
    following: dict[int, list[int]] = {
        node.index: []
        for node in view.nodes
        if node.kind == "view" or node.operation == "ToCopyBackward0"
    }
    for edge in view.recording.edges:
        if edge.source in following:
            following[edge.source].append(edge.target)
    # Nearest to the leaves first: a node is deeper than what uses it.
    for node in sorted(following, key=lambda node: -nodes[node].depth):
        if len(following[node]) == 1 and following[node][0] in found:
            found.add(node)
    return found


def _tensor_row(view: StepView, stat: TensorStat, *, is_parameter_view: bool) -> TensorRow:
    recording = view.recording
    node = recording.nodes[stat.node]
    call = None if node.module_call is None else recording.calls[node.module_call]
    site = None if node.site is None else recording.sites[node.site]
    # Code of a library has no line of the user's: the line that made the module stands for it.
    if site is None and call is not None:
        site = _definition(recording, call.module)
    shape = node.outputs[stat.slot] if stat.slot < len(node.outputs) else None
    return TensorRow(
        node=stat.node,
        slot=stat.slot,
        operation=node.operation,
        kind=node.kind,
        module=None if call is None else recording.modules[call.module].path,
        call=None if call is None else call.call,
        site=site,
        shape=None if shape is None else shape.dims,
        dtype=None if shape is None else shape.dtype,
        grad=stat.gradient,
        order=stat.order,
        reason=stat.reason,
        depth=node.depth,
        is_parameter_view=is_parameter_view,
    )


def graph_summary(view: StepView) -> GraphSummary:
    """Count the graph's nodes, edges, operations and depths."""
    nodes = view.nodes
    members = {node.index for node in nodes}
    widths = Counter(node.depth for node in nodes)
    operations = Counter(node.operation for node in nodes)
    reached = Counter(node.depth for node in nodes if node.parameter is not None)
    widest = min(widths.items(), key=lambda item: (-item[1], item[0]), default=None)
    return GraphSummary(
        nodes=len(nodes),
        edges=sum(edge.source in members for edge in view.recording.edges),
        depth=max(widths, default=0),
        leaves=sum(node.kind in ("parameter", "leaf") for node in nodes),
        views=sum(node.same_as is not None for node in nodes),
        operations=tuple(sorted(operations.items(), key=lambda item: (-item[1], item[0]))),
        widest=None if widest is None else WidestPoint(depth=widest[0], nodes=widest[1]),
        parameters_by_depth=tuple(sorted(reached.items())),
    )


def summarise(
    view: StepView,
    parameters: tuple[ParameterRow, ...],
    tensors: tuple[TensorRow, ...],
    graph: GraphSummary,
) -> Summary:
    """Count the rows by their states."""
    reach = Counter(row.reach for row in parameters)
    trainable = [row for row in parameters if row.requires_grad]
    return Summary(
        step=view.step.index if view.step else None,
        loss=view.step.loss if view.step else None,
        grad_norm=total_norm(row.grad.norm for row in parameters if row.grad),
        parameters=len(parameters),
        requires_grad=len(trainable),
        reached=reach["gradient"],
        zero=reach["zero"],
        none=reach["none"],
        frozen=reach["frozen"],
        unknown=reach["unknown"],
        numel=sum(row.numel for row in parameters),
        trainable_numel=sum(row.numel for row in trainable),
        nonfinite_parameters=sum(bool(row.grad and row.grad.is_broken) for row in parameters),
        nonfinite_tensors=sum(bool(row.grad and row.grad.is_broken) for row in tensors),
        tensors=sum(row.grad is not None for row in tensors),
        unmeasured_tensors=sum(row.grad is None for row in tensors),
        views=graph.views,
        skipped=len(view.recording.skipped),
    )


def other_steps(recording: Recording, kind: StepKind) -> tuple[OtherStep, ...]:
    """Return the steps of a kind that is not judged, in order."""
    norms: dict[int, dict[int, float]] = {
        step.index: {} for step in recording.steps if step.kind == kind
    }
    # The statistics of a long run are millions of rows, and most recordings have no such steps.
    for stat in recording.parameter_stats if norms else ():
        if stat.step in norms and stat.gradient is not None:
            norms[stat.step][stat.parameter] = stat.gradient.norm
    return tuple(
        OtherStep(
            step=step.index,
            loss=step.loss,
            grad_norm=total_norm(norms[step.index].values()),
            optimizer=step.optimizer,
            parameters=tuple(
                norms[step.index].get(parameter.index) for parameter in recording.parameters
            ),
        )
        for step in recording.steps
        if step.kind == kind
    )
