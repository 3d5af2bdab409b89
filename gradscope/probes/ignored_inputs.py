"""Finds inputs of the model that nothing depends on."""

import ast
import inspect
from collections.abc import Iterator
from types import CodeType

import torch
from torch import Tensor, nn

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import tree_of
from gradscope.capture.training.locations import is_installed
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.influence import calls_from_outside
from gradscope.recording.evidence.batches import IgnoredInputRecord
from gradscope.target.structures import map_tensors, named_tensors

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
        and _is_ignored_by_other_numbers(context, one, other)
    ]
    dropped = " ".join(context.target.notes)
    # A loss that nothing changes, as one that is satisfied, tells nothing.
    return [name for name in found if _key(name) not in dropped] * (len(found) < len(changed))


def _key(name: str) -> str:
    """Return the last key of a name: `'mask'` of `batch['mask']`."""
    return name.rpartition("[")[2].rstrip("]")


def _note(context: ProbeContext, name: str, line: Line | None, *, is_measured: bool) -> None:
    context.assembler.note(
        IgnoredInputRecord(name=name, site=context.assembler.site_of(line), is_measured=is_measured)
    )


def _loss(context: ProbeContext) -> Tensor:
    return context.forward().loss.detach().clone()


def _loss_with(
    context: ProbeContext, tensor: Tensor, other: Tensor, *, seed: int | None = None
) -> Tensor:
    """Return the loss with another tensor in a place of the batch, and from another seed."""
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
    for dimension in range(tensor.ndim):
        other = tensor.detach().roll(1, dimension)
        if not torch.equal(other, tensor):
            return other.requires_grad_(tensor.requires_grad)
    return None


def _shifted(tensor: Tensor) -> Tensor:
    """Return a tensor whose numbers move by one in memory, across its rows."""
    other = tensor.detach().flatten().roll(1).view(tensor.shape)
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
