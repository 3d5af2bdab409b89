"""GS708: losses that hardly move over all steps of a run."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import ClassVar

from gradscope.analysis.loop_windows import LoopWindow
from gradscope.analysis.losses import (
    WeightedLosses,
    losses_of_steps,
    stepped,
    weighted_losses,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import BackwardEvent, StepEvent, only
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.loss.first_loss import classes_of
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_PARTS = 5
"""Number of equal parts of a run whose mean losses are compared."""
_FIRST = 5
"""Smallest number of first steps that stand for the start."""
_GUESSING = 0.05
"""Largest distance of a loss from ln(C), as a share of it, that counts as guessing."""
_CAUSES = ("GS102", "GS109", "GS110", "GS201", "GS202", "GS203", "GS204", "GS205", "GS208", "GS318")
"""Rules that find why nothing is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatLoss(Rule):
    """The loss hardly moves over all steps of a run.

    What it finds:
        A training run whose loss is at its end what it was at its start, and all along between.

    Why it matters:
        The model learns nothing that the loss can see: the inputs do not belong to their targets,
        the learning rate is far too small or far too large, or the gradient goes elsewhere.

    How it is measured:
        The loss of a step is that of its micro-batches together. The mean losses of five equal
        parts of the run, and that of its first steps, differ by less than `moved` of their mean. At
        least `steps` steps of one optimizer are needed. Not judged are runs in which several
        optimizers step, as of a GAN; losses that change their sign, as of a policy; losses whose
        values vary by more than `noise` of their mean from step to step; learning rates that still
        rise at the end; and contrastive losses, whose classes are the examples of the batch: they
        may rest for long before they fall.

    How to fix it:
        Let the model learn a single batch: `gradscope inspect model.py --overfit`. If it does, look
        at the data: targets that are shuffled apart from their inputs, or inputs that are all
        alike. If it does not, raise the learning rate, or lower it by 10, and look at the layers
        that do not move.

    When it may be wrong:
        A run that continues a finished training, on data that hold no more to learn.

    Source:
        Karpathy, "A Recipe for Training Neural Networks", "overfit one batch".
        Measured: of 179 healthy trainings of the tests, 56 have 100 steps and are judged. The loss
        of each moves by 0.098 of its mean or more. A fine-tuning of 80 steps moves by 0.02.
    """

    code: ClassVar[str] = "GS708"
    name: ClassVar[str] = "flat-loss"
    level: ClassVar[Severity] = "note"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="moved", worse="lower"),)

    moved: float = 0.01
    """Share of the mean loss by which the loss moves. Measured."""
    noise: float = 0.25
    """Standard deviation of the losses from step to step, as a share of their mean. Measured."""
    steps: int = 100
    """Number of optimizer steps below which nothing is judged. Chosen: a warm-up is as long."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        made = stepped(context.recording)
        if len({window.optimizer for window in made}) > 1:
            return "several optimizers step: their losses may hold each other in balance"
        losses = weighted_losses(context.recording)
        if losses.steps < self.steps:
            return f"fewer than {self.steps} steps have a finite loss"
        if _has_rising_rate(made):
            return "the learning rate still rises at the end"
        if losses.lowest <= 0:
            return "the losses are not all above zero"
        if _is_contrastive(context):
            return "the classes of the loss are the examples of the batch"
        if _noise([loss for _, loss in losses_of_steps(context.recording)]) > self.noise:
            return "the losses vary too much from step to step"
        return None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the loss hardly moves."""
        made = stepped(context.recording)
        losses = weighted_losses(context.recording)
        moved = _movement(losses)
        start = next(only(BackwardEvent, made[-1].events))
        context.measured(
            self.code, "moved", moved, self.moved, fires="below", site=start.site, step=0
        )
        if moved >= self.moved:
            return
        part = losses.steps // _PARTS
        first, last = losses.mean(last=part), losses.mean(losses.steps - part)
        classes = _guessed_classes(context, losses.mean())
        guess = "" if classes is None else f": as much as guessing among {classes} classes"
        yield self.finding(
            context,
            message=(
                f"the loss hardly moves in {counted(losses.steps, 'step')}: it is "
                f"{short(first, 4)} in the first {part:,} and {short(last, 4)} in the last{guess}"
            ),
            remedy=(
                "see whether it learns one batch, with gradscope inspect --overfit; if so, check "
                "that inputs and targets belong together"
            ),
            site=start.site,
            evidence={
                "moved": moved,
                "limit": self.moved,
                "first_loss": first,
                "last_loss": last,
                "steps": losses.steps,
                "classes": classes,
            },
            step=made[-1].step.index,
            caused_by=_CAUSES,
        )


def _movement(losses: WeightedLosses) -> float:
    """Return by what share of its mean the loss moves, apart from changes from step to step."""
    part = losses.steps // _PARTS
    parts = [losses.mean(part * number, part * (number + 1)) for number in range(_PARTS)]
    # A fall within the first steps is lost in the mean of the first fifth.
    start, mean = losses.mean(last=max(losses.steps // 20, _FIRST)), losses.mean()
    return max(max(parts) - min(parts), abs(start - mean)) / mean


def _noise(losses: Sequence[float]) -> float:
    """Return the standard deviation of the losses from step to step over their mean."""
    changes = [after - before for before, after in pairwise(losses)]
    # The difference of two independent losses has twice the variance of one. A slow trend adds
    # little to it.
    return pstdev(changes) / math.sqrt(2) / fmean(losses)


def _has_rising_rate(made: Sequence[LoopWindow]) -> bool:
    rates = [
        event.lr
        for window in made
        for event in only(StepEvent, window.events)
        if event.lr is not None
    ]
    return bool(rates) and rates[-1] == max(rates) and rates[-1] > 2 * rates[0]


def _comparisons(context: RuleContext) -> Iterator[ComparisonRecord]:
    for captured in context.recording.captured_steps:
        yield from captured.recording.evidence_of(ComparisonRecord)


def _is_contrastive(context: RuleContext) -> bool:
    return any(
        len(record.left.dims) == 2 and record.left.dims[0] == classes_of(record)
        for record in _comparisons(context)
    )


def _guessed_classes(context: RuleContext, loss: float) -> int | None:
    """Return the number of classes among which a guess has this loss; None if there is none."""
    found = (classes_of(record) for record in _comparisons(context))
    return next(
        (classes for classes in found if classes and abs(loss / math.log(classes) - 1) < _GUESSING),
        None,
    )
