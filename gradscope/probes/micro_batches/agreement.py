"""Checks whether the gradients of micro-batches add up to the whole batch's.

The micro-batches use the same weights and the random numbers of the whole batch. Any remaining
difference comes from the computation of the loss.
"""

import math
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradscope.capture.step.graph import VIEW_OPERATIONS
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.micro_batches.batch_division import Division, divide
from gradscope.probes.micro_batches.runs import MicroBatchTrial, run_micro_batches
from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
    Obstruction,
)

_ALIKE = 1e-2
"""Maximum relative difference between excesses of micro-batches that count as equal."""


def probe_micro_batches(context: ProbeContext) -> str | None:
    """Record the accumulated gradients of micro-batches, if that was requested."""
    if context.micro_batches is None:
        return "no micro-batches were requested"
    reason = _probed(context, context.micro_batches)
    if reason is not None:
        context.assembler.skip(f"{context.micro_batches} micro-batches", reason)
    return reason


def _probed(context: ProbeContext, number: int) -> str | None:
    try:
        division = divide(context.target.batch, number)
        trial = run_micro_batches(context, division)
    except GradscopeError as error:
        return error.what if error.cause is None else f"{error.what} ({error.cause})"
    if not math.isfinite(trial.total.norm):
        return "the whole batch's gradient is not finite"
    if trial.total.norm == 0.0:
        return "the whole batch's gradient is zero"
    norms = _normalising(context)
    calm = None
    if trial.law.name == "none" and all(trial.finite) and (norms or trial.unmatched):
        calm = _calm(context, division, tuple(context.named.modules) if trial.unmatched else norms)
    _note(context, trial, norms, calm)
    return None


def _normalising(context: ProbeContext) -> tuple[nn.Module, ...]:
    """Return the modules that normalize by statistics of the batch."""
    return tuple(
        module
        for module in context.named.modules
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    )


def _calm(
    context: ProbeContext, division: Division, still: tuple[nn.Module, ...]
) -> MicroBatchTrial | None:
    """Run everything again with modules in eval mode; None if that is impossible."""
    try:
        return run_micro_batches(context, division, still)
    except GradscopeError:
        return None


def _obstruction(
    context: ProbeContext,
    trial: MicroBatchTrial,
    norms: tuple[nn.Module, ...],
    calm: MicroBatchTrial | None,
) -> Obstruction:
    if not all(trial.finite):
        return "non-finite"
    is_calm = calm is not None and calm.law.name != "none"
    # Without running statistics, eval mode normalizes by the batch as well.
    if norms and (is_calm or any(module.running_mean is None for module in norms)):
        return "batch norm"
    if trial.unmatched and (is_calm or calm is None or calm.unmatched):
        return "random numbers"
    if _has_repeated_term(context, trial):
        return "repeated term"
    is_seen = _meeting_site(context, trial) is not None
    # float16 underflows gradients of the full batch that are larger with fewer examples.
    return "half precision" if trial.whole.graph.is_low and not is_seen else "examples meet"


def _has_repeated_term(context: ProbeContext, trial: MicroBatchTrial) -> bool:
    """Return whether each micro-batch adds the same term again, such as a weight penalty.

    The excess is then the same for each micro-batch except the first, for any number of
    micro-batches.
    """
    number = 3 if len(trial.parts) == 2 else 2
    try:
        other = run_micro_batches(context, divide(context.target.batch, number))
    except GradscopeError:
        return False
    difference = (trial.excess - other.excess).norm()
    return bool(difference <= _ALIKE * trial.excess.norm())


def _note(
    context: ProbeContext,
    trial: MicroBatchTrial,
    norms: tuple[nn.Module, ...],
    calm: MicroBatchTrial | None,
) -> None:
    law, total, division = trial.law, trial.total, trial.division
    number = len(division.parts)
    count = trial.count
    obstruction = _obstruction(context, trial, norms, calm) if law.name == "none" else None
    positions = {id(module): position for position, module in enumerate(context.named.modules)}
    context.assembler.note(
        AccumulationRecord(
            micro_batches=number,
            rows=division.rows,
            repeated=division.repeated,
            loss=trial.whole.loss,
            law=law.name,
            unit=None if count is None else count.unit,
            obstruction=obstruction,
            modules=tuple(positions[id(module)] for module in norms),
            site=_meeting_site(context, trial) if obstruction == "examples meet" else None,
            apart=None if calm is None else calm.law.name,
            draws=trial.draws,
            unmatched=trial.unmatched,
            scale=total.scale,
            cosine=total.cosine,
            deviation=total.deviation(),
            divided=total.deviation(1 / number),
            remaining=law.remaining,
        )
    )
    amounts = division.sizes if count is None else count.amounts
    for position, run in enumerate(trial.parts):
        context.assembler.note(
            MicroBatchRecord(
                rows=division.sizes[position],
                loss=run.loss,
                is_finite=trial.finite[position],
                count=float(amounts[position]),
                weight=None if law.name == "none" else law.weights[position],
            )
        )
    _note_parameters(context, trial)


def _note_parameters(context: ProbeContext, trial: MicroBatchTrial) -> None:
    remaining = trial.sums.remaining(trial.law.weights)
    for position, one in trial.products.items():
        # Ratios of gradients that are mostly rounding would look like mistakes.
        is_tiny = one.is_tiny(trial.total)
        context.assembler.note(
            AccumulatedGradient(
                parameter=position,
                norm=one.norm,
                scale=math.nan if is_tiny else one.scale,
                deviation=math.nan if is_tiny else one.deviation(),
                remaining=math.nan if is_tiny else remaining[position],
            )
        )


def _meeting_site(context: ProbeContext, trial: MicroBatchTrial) -> int | None:
    """Return the first line whose result has examples along two dimensions."""
    whole, part = trial.whole.graph, trial.parts[0].graph
    known = context.capture.graph
    if whole.operations != part.operations or _plain(known.operations) != _plain(whole.operations):
        return None
    rows, size = trial.division.rows, trial.division.sizes[0]
    meeting = [
        position
        for position, (one, other) in enumerate(zip(whole.shapes, part.shapes, strict=True))
        if any(_grown(*dims, rows, size) > 1 for dims in zip(one, other, strict=False))
    ]
    # The walk starts at the loss: the last one is the first of the forward.
    for position in reversed(meeting):
        line = context.capture.line_of(known.nodes[position])
        if line is not None:
            return context.assembler.site_of(line)
    return None


def _plain(operations: Sequence[str]) -> list[str]:
    """Return the operations with one name for all views: modes change how a reshape is done."""
    return ["view" if name in VIEW_OPERATIONS else name for name in operations]


def _grown(whole: tuple[int, ...], part: tuple[int, ...], rows: int, size: int) -> int:
    """Return the number of dimensions that grow with the batch by the same factor."""
    if len(whole) != len(part):
        return 0
    pairs = zip(whole, part, strict=True)
    return sum(one != other and one * size == other * rows for one, other in pairs)
