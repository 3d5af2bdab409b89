"""Joins the modules of a recording with their parameters, calls and the gradients at their ends."""

from collections.abc import Iterator

from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import StepView
from gradscope.analysis.rows import ModuleCallRow, ModuleRow, ParameterRow
from gradscope.recording.records import ModuleCallRecord, ModuleRecord, Recording, TensorRef


def module_rows(view: StepView, parameters: tuple[ParameterRow, ...]) -> tuple[ModuleRow, ...]:
    """Return a row for each module, in the recording's order."""
    below = _parameters_below(view.recording, parameters)
    calls = _calls(view)
    return tuple(
        _module_row(view.recording, module, below[module.index], calls.get(module.index, []))
        for module in view.recording.modules
    )


def _module_row(
    recording: Recording,
    module: ModuleRecord,
    held: list[ParameterRow],
    calls: list[ModuleCallRow],
) -> ModuleRow:
    paths = {module.path, *module.aliases}
    own = [row for row in held if paths.intersection(_owners(row))]
    return ModuleRow(
        index=module.index,
        path=module.path,
        aliases=module.aliases,
        class_name=module.class_name,
        parent=module.parent,
        depth=_depth(recording, module),
        in_model=module.in_model,
        site=None if module.site is None else recording.sites[module.site],
        training=module.training,
        parameters=len(held),
        trainable_parameters=sum(row.requires_grad for row in held),
        own_parameters=len(own),
        numel=sum(row.numel for row in held),
        own_numel=sum(row.numel for row in own),
        grad_norm=total_norm(row.grad.norm for row in held if row.grad),
        weight_norm=total_norm(row.weight_norm for row in held if row.weight_norm is not None),
        calls=tuple(calls),
    )


def _depth(recording: Recording, module: ModuleRecord) -> int:
    depth, parent = 0, module.parent
    while parent is not None:
        depth, parent = depth + 1, recording.modules[parent].parent
    return depth


def _owners(parameter: ParameterRow) -> Iterator[str]:
    """Yield the paths of the modules that hold a parameter under any of its names."""
    for name in (parameter.name, *parameter.aliases):
        yield name.rpartition(".")[0]


def _parameters_below(
    recording: Recording, parameters: tuple[ParameterRow, ...]
) -> list[list[ParameterRow]]:
    """Return, by module, the parameters in it and below it under any of their names."""
    if len({module.path for module in recording.modules}) < len(recording.modules):
        held = parameters_held(recording)
        return [[parameters[index] for index in held[module.index]] for module in recording.modules]
    positions = {
        path: module.index
        for module in recording.modules
        if module.in_model
        for path in (module.path, *module.aliases)
    }
    below: list[list[ParameterRow]] = [[] for _ in recording.modules]
    for parameter in parameters:
        holders = {positions[path] for path in _ancestors(parameter) if path in positions}
        for holder in holders:
            below[holder].append(parameter)
    return below


def parameters_held(recording: Recording) -> list[list[int]]:
    """Return the same by indices, where paths may repeat: a script makes models again and again.

    Only names of tied weights are followed by their paths.
    """
    positions = {module.path: module.index for module in recording.modules}
    held: list[list[int]] = [[] for _ in recording.modules]
    for parameter in recording.parameters:
        aliases = (positions.get(alias.rpartition(".")[0]) for alias in parameter.aliases)
        holders: set[int] = set()
        for owner in (parameter.module, *aliases):
            module = owner
            while module is not None and module not in holders:
                holders.add(module)
                module = recording.modules[module].parent
        for holder in holders:
            held[holder].append(parameter.index)
    return held


def _ancestors(parameter: ParameterRow) -> Iterator[str]:
    yield ""
    for path in _owners(parameter):
        while path:
            yield path
            path = path.rpartition(".")[0]


def _calls(view: StepView) -> dict[int, list[ModuleCallRow]]:
    recording = view.recording
    graph = view.step.graph if view.step else None
    rows: dict[int, list[ModuleCallRow]] = {}
    for call in recording.calls:
        if call.graph == graph:
            rows.setdefault(call.module, []).append(_call_row(view, call))
    return rows


def _call_row(view: StepView, call: ModuleCallRecord) -> ModuleCallRow:
    return ModuleCallRow(
        index=call.index,
        call=call.call,
        site=None if call.site is None else view.recording.sites[call.site],
        output_grad_norm=_grad_norm(view, call.outputs),
        input_grad_norm=_input_grad_norm(view, call),
    )


def _input_grad_norm(view: StepView, call: ModuleCallRecord) -> float | None:
    """Return the total norm of the gradients that came back through the call."""
    parts = {
        ref: view.input_norms[call.index, position]
        for position, ref in enumerate(call.inputs)
        if (call.index, position) in view.input_norms
    }
    whole = [ref for ref in dict.fromkeys(call.inputs) if ref not in parts]
    rest = _grad_norm(view, tuple(whole))
    if whole and rest is None:
        return None
    norms = [norm for norm in (*parts.values(), rest) if norm is not None]
    return total_norm(norms)


def _grad_norm(view: StepView, refs: tuple[TensorRef, ...]) -> float | None:
    """Return the total norm over distinct tensors.

    None where none got a gradient, and where one that got one has no numbers.
    """
    norms = []
    for ref in dict.fromkeys(view.measured(ref) for ref in refs):
        stat = view.tensor_stats.get(ref)
        parameter = view.recording.nodes[ref.node].parameter
        gradient = stat.gradient if stat else None
        if gradient is None and parameter is not None:
            held = view.parameter_stats.get(parameter)
            gradient = held.gradient if held else None
        if gradient is not None:
            norms.append(gradient.norm)
        elif stat is not None and stat.order is not None:
            return None
    return total_norm(norms)
