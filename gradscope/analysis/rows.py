"""The rows of a report, joined from a recording's records; plain data, torch-free.

As in the records, `None`, `0.0` and NaN are three different values: not measured, zero, broken.
"""

import math
from collections.abc import Iterator
from typing import Literal

from gradscope.analysis.norms import total_norm
from gradscope.analysis.recording_index import StepView
from gradscope.frozen import dataclass
from gradscope.recording.records import (
    GradientStat,
    ModuleCallRecord,
    ModuleRecord,
    NodeKind,
    Reach,
    Recording,
    Site,
    TensorRef,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRow:
    """A parameter, and its state after the step."""

    index: int
    name: str
    aliases: tuple[str, ...]
    """Other names of the same tensor."""
    module: str
    """Path of the module that owns it under its first name."""
    use: Site | None
    """Line of the first operation that used it, otherwise of the first call of its module."""
    definition: Site | None
    """Line that made its module, or the nearest module around it that has one."""
    shape: tuple[int, ...]
    dtype: str
    device: str
    numel: int
    requires_grad: bool
    reach: Reach | Literal["unknown"]
    """State after backward; `unknown` if no complete backward was observed."""
    reason: str | None
    """Reason why there is no gradient, if `grad` is None."""
    grad: GradientStat | None
    weight_norm: float | None
    update_norm: float | None
    """Norm of the change by an optimizer step."""
    optimizer_group: int | None
    depth: int | None
    """Number of edges on the longest path from the loss."""

    @property
    def site(self) -> Site | None:
        """Line that uses it, otherwise the line that made its module."""
        return self.use or self.definition

    @property
    def grad_to_weight(self) -> float | None:
        """Gradient norm over weight norm; None without a gradient or with a zero weight."""
        return quotient(None if self.grad is None else self.grad.norm, self.weight_norm)

    @property
    def update_to_weight(self) -> float | None:
        """Update norm over weight norm; None without an update or with a zero weight."""
        return quotient(self.update_norm, self.weight_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCallRow:
    """One call of a module, and the gradients at its ends."""

    index: int
    """Index of the call in the recording."""
    call: int
    """Number of earlier calls of this module."""
    site: Site | None
    """Line that made the call."""
    output_grad_norm: float | None
    """Total norm of the gradients with respect to the outputs."""
    input_grad_norm: float | None
    """Gradient norm at the call's inputs, through this call only: gradients from other uses of an
    input, such as a residual branch, are not included."""

    @property
    def gain(self) -> float | None:
        """Input gradient norm over output gradient norm: what backward through the call does."""
        return quotient(self.input_grad_norm, self.output_grad_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """A module; its sums take the modules below it in, each tied tensor once."""

    index: int
    path: str
    """Fully qualified name; empty for the model itself."""
    aliases: tuple[str, ...]
    class_name: str
    parent: int | None
    """Index of the parent's row."""
    depth: int
    """Number of enclosing modules."""
    in_model: bool
    site: Site | None
    """Line that assigned it to its parent, if that was observed."""
    training: bool
    parameters: int
    """Number of parameter tensors in the module and below it."""
    trainable_parameters: int
    """Number of parameters that require grad."""
    own_parameters: int
    """Number of parameter tensors that are its own attributes."""
    numel: int
    """Number of elements of all its parameters."""
    own_numel: int
    grad_norm: float | None
    """Total norm of the parameters' gradients; None if no parameter has one."""
    weight_norm: float | None
    """Total norm of the parameters; None if there are none."""
    calls: tuple[ModuleCallRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRow:
    """A tensor of the forward, and the gradient with respect to it."""

    node: int
    """Node of the graph whose output it is."""
    slot: int
    operation: str
    """Operation by autograd's name: `AddmmBackward0`."""
    kind: NodeKind
    module: str | None
    """Path of the innermost module whose call made it; None outside all modules."""
    call: int | None
    """Index of the module's call, from 0."""
    site: Site | None
    """Line that made it. If that is in torch, as for an `nn.Sequential`, the line that defined the
    module.
    """
    shape: tuple[int, ...] | None
    dtype: str | None
    grad: GradientStat | None
    order: int | None
    """Index in the order in which backward delivered the gradients."""
    reason: str | None
    """Reason why there is no gradient, if `grad` is None."""
    depth: int
    """Number of edges on the longest path from the loss."""
    is_parameter_view: bool
    """Whether the tensor is a parameter with another shape or dtype, such as a transposed weight.
    """

    @property
    def is_telling(self) -> bool:
        """Whether the size of its gradient adds information to the other rows."""
        is_scalar = self.shape is not None and math.prod(self.shape) == 1
        return bool(self.depth) and not is_scalar and not self.is_parameter_view


@dataclass(frozen=True, slots=True, kw_only=True)
class WidestPoint:
    """The depth at which the graph has the most nodes; the one nearest to the loss of several."""

    depth: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """The structure of the backward graph."""

    nodes: int
    edges: int
    depth: int
    """Number of edges on the longest path from the loss."""
    leaves: int
    """Number of tensors that gradients accumulate into, parameters included."""
    views: int
    """Number of nodes that have the gradient of another tensor in another shape; it is measured
    there.
    """
    operations: tuple[tuple[str, int], ...]
    """Number of nodes by operation, most frequent first."""
    widest: WidestPoint | None
    """None for an empty graph."""
    parameters_by_depth: tuple[tuple[int, int], ...]
    """Pairs of a depth and the number of parameters that backward reaches at that depth, nearest to
    the loss first.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The report in numbers."""

    step: int | None
    """Judged step, as the number of optimizer steps before it; None if there is none."""
    loss: float | None
    grad_norm: float | None
    """Global norm over all parameters, each once; None if none has a gradient."""
    parameters: int
    requires_grad: int
    reached: int
    """Number of parameters with a gradient that is not all zero."""
    zero: int
    """Number of parameters whose gradient is all zero."""
    none: int
    """Number of parameters that require grad and got none."""
    frozen: int
    unknown: int
    """Number of parameters that require grad, in a step without a measured backward."""
    numel: int
    """Number of elements of all parameters."""
    trainable_numel: int
    """Number of elements of the parameters that require grad."""
    nonfinite_parameters: int
    """Number of parameters with a NaN or an infinity in the gradient."""
    nonfinite_tensors: int
    tensors: int
    """Number of distinct tensors of the forward with a measured gradient."""
    unmeasured_tensors: int
    views: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherStep:
    """A training step before the judged one, or a probe after it, on a snapshot."""

    step: int
    loss: float | None
    grad_norm: float | None
    """Global norm over all parameters."""
    optimizer: str | None
    parameters: tuple[float | None, ...]
    """Gradient norms, in the order of the report's parameters."""


def quotient(above: float | None, below: float | None) -> float | None:
    """Return a quotient; None if a number is missing, or the lower one is zero."""
    if above is None or below is None or below == 0.0:
        return None
    # inf / inf is NaN here; a plain division of floats raises only for a zero below.
    return above / below


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
    graph = view.step.graph if view.step else None
    rows: dict[int, list[ModuleCallRow]] = {}
    for call in view.recording.calls:
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
    return total_norm([norm for norm in (*parts.values(), rest) if norm is not None])


def _grad_norm(view: StepView, refs: tuple[TensorRef, ...]) -> float | None:
    """Return the total norm over distinct tensors; None without one, or if one has no numbers."""
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
