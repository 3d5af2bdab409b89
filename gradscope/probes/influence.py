"""Checks what outputs depend on: parameters without a gradient, inputs, and chance."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType

import torch
from torch import Tensor, nn

from gradscope.capture.compiler import watchable
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import tree_of
from gradscope.capture.step.graph import leaves_behind
from gradscope.capture.step.graph_records import CutFinder
from gradscope.capture.step.modules import ModuleCall
from gradscope.capture.training.locations import is_installed
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.padding import probe_padding
from gradscope.probes.snapshot import RandomStates
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.batches import IgnoredInputRecord
from gradscope.recording.evidence.parameters import (
    DroppedRecord,
    InfluenceRecord,
    RedrawRecord,
    UnreadModuleRecord,
)
from gradscope.target.forward import seed_everything
from gradscope.target.structures import map_tensors, named_tensors


def probe_dropped(context: ProbeContext) -> str | None:
    """Record the parameters that neither the loss nor the model's output uses.

    Where the loss does not use some, it also records the assignments that drop their values.
    """
    lost = {
        id(context.named.parameters[record.index]): record.index
        for record in context.named.parameter_records
        if record.requires_grad and record.index not in context.measured.reached
    }
    if not lost:
        return None
    code = UserCodeSearch(context)
    for record in code.overwritten():
        context.assembler.note(record)
    for module in _unread_modules(context, code, set(lost.values())):
        context.assembler.note(UnreadModuleRecord(module=module))
    calls = list(calls_from_outside(context))
    # The content of an opaque container is unknown.
    if not calls or not all(call.outputs for call in calls):
        return "the model's output contains no tensor of the graph"
    if any(edge.number is not None for call in calls for edge in call.outputs):
        return "the model was called too often to store all of its outputs"
    for leaf in leaves_behind(*(edge for call in calls for edge in call.outputs)):
        lost.pop(id(leaf), None)
    if lost:
        context.assembler.note(DroppedRecord(parameters=tuple(sorted(lost.values()))))
    return None


def _unread_modules(context: ProbeContext, code: UserCodeSearch, lost: set[int]) -> Iterator[int]:
    """Yield the modules with lost parameters that were not called, and that no code reads."""
    called = {id(call.module) for call in context.capture.modules.calls}
    modules, records = context.named.modules, context.named.module_records
    affected = {context.named.parameter_records[index].module for index in lost}
    for record in records:
        owner = None if record.parent is None else modules[record.parent]
        if owner is None or id(owner) not in called or id(modules[record.index]) in called:
            continue
        inside = record.index in affected or any(
            one is not None and records[one].path.startswith(f"{record.path}.") for one in affected
        )
        if inside and code.reads_nowhere(type(owner), record.path.rpartition(".")[2]):
            yield record.index


def calls_from_outside(context: ProbeContext) -> Iterator[ModuleCall]:
    """Yield the calls of the model's modules that were not made by one of its modules."""
    own = {id(module) for module in context.named.modules}
    calls = context.capture.modules.calls
    for call in calls:
        outer = None if call.parent is None else calls[call.parent].module
        if id(call.module) in own and id(outer) not in own:
            yield call


MOST_GROUPS = 8
"""Maximum number of parameter groups that are tested, each by a forward."""


def probe_influence(context: ProbeContext) -> str | None:
    """Change the parameters that may or may not lead to the loss."""
    groups = _groups(context)
    if not groups:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    if len(groups) > MOST_GROUPS:
        return f"{len(groups)} groups of parameters are too many to test"
    try:
        before = _loss(context)
        # Without a repeatable loss, no bitwise comparison shows an influence.
        if not torch.equal(before, _loss(context)):
            return "the loss differs from run to run"
        for group in groups:
            with _other_values([context.named.parameters[position] for position in group]):
                changes = not torch.equal(before, _loss(context))
            context.assembler.note(InfluenceRecord(parameters=group, changes_loss=changes))
    except GradscopeError:
        return "the forward raised an exception with other values"
    return None


def _groups(context: ProbeContext) -> list[tuple[int, ...]]:
    """Return the parameters without a gradient, grouped by the cuts that may explain it."""
    lost = {
        id(context.named.parameters[record.index]): record.index
        for record in context.named.parameter_records
        if record.requires_grad and record.index not in context.measured.reached
    }
    finder = CutFinder(context.capture, lost)
    groups: dict[object, list[int]] = {}
    for position in lost.values():
        cuts = finder.unsettled(position)
        if cuts:
            # Parameters behind the same cuts share one forward: each costs as much as a step.
            groups.setdefault(cuts, []).append(position)
    return [tuple(positions) for positions in groups.values()]


def _loss(context: ProbeContext) -> Tensor:
    return context.forward().loss.detach().clone()


@contextmanager
def _other_values(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Run the block with noise in some parameters."""
    kept = [(parameter, parameter.detach().clone()) for parameter in parameters]
    generator = torch.Generator().manual_seed(0)
    try:
        for parameter, values in kept:
            # Noise from a generator of its own leaves the random numbers of the forward unchanged.
            noise = torch.randn(values.shape, generator=generator)
            # Through `.data`, so that no version changes: saved tensors of a live graph stay valid.
            parameter.data.copy_(noise)
        yield
    finally:
        for parameter, values in kept:
            parameter.data.copy_(values)


_MOST_TENSORS = 8
"""Maximum number of tensors that are changed, each with a forward."""


def probe_ignored_inputs(context: ProbeContext) -> str | None:
    """Record the inputs that a forward never reads, and tensors that change nothing."""
    for module in dict.fromkeys(call.module for call in calls_from_outside(context)):
        for name, line in _unread(module):
            _note(context, name, line, is_measured=False)
    if context.of_run or context.opaque or not context.reruns:
        return None
    try:
        ignored = _without_effect(context)
    except GradscopeError:
        return None  # the forward raised with other numbers: they have an effect
    for name in ignored:
        _note(context, name, _line_of(context.target.model), is_measured=True)
    try:
        before = _loss(context)
        if not ignored and torch.equal(before, _loss(context)):
            probe_padding(context, before)
    except GradscopeError:
        return None  # the padding cannot hold other numbers
    return None


def _without_effect(context: ProbeContext) -> list[str]:
    """Return the tensors of the batch that may hold other numbers, if others may not."""
    tensors = list(named_tensors(context.target.batch, "batch"))
    loss = _loss(context)
    if len(tensors) > _MOST_TENSORS or not torch.equal(loss, _loss(context)):
        return []
    changed = [(name, one, other) for name, one in tensors if (other := _other(one)) is not None]
    found = [
        name
        for name, one, other in changed
        if torch.equal(loss, _loss_with(context, one, other))
        # The mean over examples that meet no others does not depend on their order.
        and torch.equal(loss, _loss_with(context, one, _shifted(one)))
        and torch.equal(loss, _loss_with(context, one, _repeated(one)))
        and _is_ignored_by_other_numbers(context, one, other)
    ]
    dropped = " ".join(context.target.notes)
    # A loss that nothing changes, such as a satisfied margin, shows no influence.
    return [name for name in found if _key(name) not in dropped] * (len(found) < len(changed))


def _key(name: str) -> str:
    """Return the last key of a name: `'mask'` of `batch['mask']`."""
    return name.rpartition("[")[2].rstrip("]")


def _note(context: ProbeContext, name: str, line: Line | None, *, is_measured: bool) -> None:
    context.assembler.note(
        IgnoredInputRecord(name=name, site=context.assembler.site_of(line), is_measured=is_measured)
    )


def _loss_with(
    context: ProbeContext, tensor: Tensor, other: Tensor, *, seed: int | None = None
) -> Tensor:
    """Return the loss with another tensor in one position of the batch, and from another seed."""
    target = context.target
    batch = map_tensors(target.batch, lambda one: other if one is tensor else one)
    seed = target.seed if seed is None else seed
    with context.as_at_first(), torch.inference_mode(False), torch.enable_grad():
        return target.forward.at(batch, seed)().loss.detach()


def _is_ignored_by_other_numbers(context: ProbeContext, tensor: Tensor, other: Tensor) -> bool:
    """Return whether a tensor has no effect either if the forward draws other random numbers.

    Dropout may drop all that depends on it.
    """
    seed = (context.target.seed or 0) + 1
    expected = _loss_with(context, tensor, tensor, seed=seed)
    return torch.equal(expected, _loss_with(context, tensor, other, seed=seed))


def _other(tensor: Tensor) -> Tensor | None:
    """Return a tensor with the same numbers elsewhere, None if that changes nothing."""
    # Moved values keep the distribution: other values could break lookups, such as token ids.
    for dimension in range(tensor.ndim):
        other = tensor.detach().roll(1, dimension)
        if not torch.equal(other, tensor):
            return other.requires_grad_(tensor.requires_grad)
    return None


def _shifted(tensor: Tensor) -> Tensor:
    """Return a tensor whose numbers move by one in memory, across its rows."""
    other = tensor.detach().flatten().roll(1).view(tensor.shape)
    return other.requires_grad_(tensor.requires_grad)


def _repeated(tensor: Tensor) -> Tensor:
    """Return a tensor whose first half is in the place of the second, too.

    Of examples of one number each, every other place is another order.
    """
    flat = tensor.detach().flatten()
    half = flat[: (len(flat) + 1) // 2]
    other = torch.cat((half, half))[: len(flat)].view(tensor.shape)
    return other.requires_grad_(tensor.requires_grad)


def _unread(module: nn.Module) -> Iterator[tuple[str, Line]]:
    """Yield the parameters that a forward requires and never mentions, with the line of each."""
    line = _line_of(module)
    if line is None or is_installed(line.code.co_filename):
        return
    function = _function_at(line.code)
    if function is None:
        return
    read = {one.id for part in function.body for one in ast.walk(part) if isinstance(one, ast.Name)}
    if "locals" in read or _is_abstract(function):
        return
    for name, parameter in list(inspect.signature(type(module).forward).parameters.items())[1:]:
        is_required = parameter.default is parameter.empty
        is_plain = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if is_required and is_plain and name not in read and not name.startswith("_"):
            yield name, line


def _line_of(module: nn.Module) -> Line | None:
    """Return the line that defines a module's forward."""
    code = getattr(type(module).forward, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    function = _function_at(code)
    return Line(code, code.co_firstlineno if function is None else function.lineno)


def _function_at(code: CodeType) -> ast.FunctionDef | None:
    for one in ast.walk(tree_of(code.co_filename)):
        if isinstance(one, ast.FunctionDef) and one.name == code.co_name:
            first = min([one.lineno, *(item.lineno for item in one.decorator_list)])
            if first == code.co_firstlineno:
                return one
    return None


def _is_abstract(function: ast.FunctionDef) -> bool:
    """Return whether a function only raises, or does nothing."""
    return all(isinstance(one, ast.Expr | ast.Pass | ast.Raise) for one in function.body)


_SEED = 0x5EED
"""Seed of the first draw; further ones count up from it."""

_FEWEST, _MOST = 4, 32
"""Number of draws: with 32, a path taken by one forward in ten is missed in 3 % of cases."""

_NODES, _ELEMENTS = 20_000, 20_000_000
"""Maximum number of operations, and of gradient elements, of all draws together."""


def probe_redraws(context: ProbeContext) -> str | None:
    """Record the parameters that get a gradient with other random numbers."""
    missing = _without_gradient(context)
    if not missing:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    before = RandomStates.now()
    try:
        record = _redrawn(context, missing)
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    except RuntimeError as error:  # for example under a reentrant checkpoint
        return f"backward raised when it was repeated: {str(error).splitlines()[0]}"
    finally:
        before.restore()
    if record.parameters:
        context.assembler.note(record)
    return None


def _redrawn(context: ProbeContext, missing: set[int]) -> RedrawRecord:
    found, draws = set[int](), 0
    while found < missing and draws < _affordable(context):
        reached = _reached(context, _SEED + draws, sorted(missing - found))
        if reached is None:
            break
        found |= reached
        draws += 1
    return RedrawRecord(draws=draws, parameters=tuple(sorted(found)))


def _without_gradient(context: ProbeContext) -> set[int]:
    """Return the parameters without a gradient, or with one of zeros."""
    return {
        position
        for position, parameter in enumerate(context.named.parameters)
        if parameter.requires_grad
        and (
            position not in context.measured.reached
            or ((left := context.measured.parameter(position)) is not None and left.norm == 0)
        )
    }


def _affordable(context: ProbeContext) -> int:
    elements = sum(parameter.numel() for parameter in context.named.parameters)
    nodes = len(context.capture.graph.nodes)
    fitting = min(_NODES // max(nodes, 1), _ELEMENTS // max(elements, 1))
    return min(max(fitting, _FEWEST), _MOST)


def _reached(context: ProbeContext, seed: int, missing: list[int]) -> set[int] | None:
    """Return the parameters that get a gradient with a seed, None if nothing is random."""
    parameters = [context.named.parameters[position] for position in missing]
    forward = context.target.forward.at(context.target.batch, seed)
    with torch.inference_mode(False), torch.enable_grad(), watchable():
        outcome = forward()
        if not _has_drawn(seed):
            return None
        # Unlike backward, `autograd.grad` leaves `.grad` unchanged.
        gradients = torch.autograd.grad(
            outcome.loss, parameters, outcome.grad_output, allow_unused=True
        )
    return {
        position
        for position, gradient in zip(missing, gradients, strict=True)
        if gradient is not None and bool(_values(gradient).any())
    }


def _has_drawn(seed: int) -> bool:
    """Return whether random numbers were drawn since a seed was set.

    A model's own generators are ignored: they continue from step to step, so that further steps
    show the effect.
    """
    after = RandomStates.now()
    seed_everything(seed)
    return not RandomStates.now().equal(after)


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
