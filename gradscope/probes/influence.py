"""Checks whether the loss, or any output, depends on parameters without a gradient."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gradscope.capture.step.cut_records import CutFinder
from gradscope.capture.step.cuts import leaves_behind
from gradscope.capture.step.modules import ModuleCall
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.user_code_search import UserCodeSearch
from gradscope.recording.evidence.parameters import DroppedRecord, InfluenceRecord


def probe_dropped(context: ProbeContext) -> str | None:
    """Record the parameters that neither the loss nor the model's output uses."""
    lost = {
        id(context.named.parameters[record.index]): record.index
        for record in context.named.parameter_records
        if record.requires_grad and record.index not in context.measured.reached
    }
    if not lost:
        return None
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
        for record in UserCodeSearch(context).overwritten():
            context.assembler.note(record)
    return None


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
            noise = torch.randn(values.shape, generator=generator)
            parameter.data.copy_(noise)
        yield
    finally:
        for parameter, values in kept:
            parameter.data.copy_(values)
