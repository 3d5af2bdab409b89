"""The losses of a run in order, each with the number of steps that it stands for."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import fmean

from gradscope.analysis.kept_steps import KeptSteps, Span
from gradscope.analysis.loop_windows import LoopWindow, windows
from gradscope.analysis.losses.step_losses import step_losses
from gradscope.analysis.recording_index import derived_once
from gradscope.recording.events import BackwardEvent, only
from gradscope.recording.records import Recording


@dataclass(frozen=True)
class WeightedLosses:
    """Losses in the order of the steps.

    Of a long run these are the means of its summaries, and the losses of the steps outside of all.
    """

    values: Sequence[float]
    counts: Sequence[float]
    """Number of steps of each."""
    lowest: float
    """The smallest loss of a step; infinite without any."""
    highest: float

    @cached_property
    def _ends(self) -> Sequence[float]:
        return list(accumulate(self.counts))

    @property
    def steps(self) -> int:
        """Number of steps with a finite loss."""
        return int(self._ends[-1]) if self.values else 0

    def mean(self, first: float = 0.0, last: float = math.inf) -> float:
        """Return the mean loss from the first step up to the last, which is not included."""
        ends = self._ends
        at = bisect_right(ends, first)
        total = weight = 0.0
        while at < len(ends) and ends[at] - self.counts[at] < last:
            share = min(ends[at], last) - max(ends[at] - self.counts[at], first)
            total += share * self.values[at]
            weight += share
            at += 1
        return total / weight if weight else math.nan


def stepped(recording: Recording) -> tuple[LoopWindow, ...]:
    """Return the windows that end with a step and have a backward."""
    return derived_once(recording, _stepped)


def _stepped(recording: Recording) -> tuple[LoopWindow, ...]:
    return tuple(
        window
        for window in windows(recording)
        if window.is_finished and not window.is_skipped and any(only(BackwardEvent, window.events))
    )


def losses_of_steps(recording: Recording) -> list[tuple[int, float]]:
    """Return the finite losses of the whole steps that have a backward, with the steps."""
    joined = step_losses(recording).by_step
    return [
        (window.step.index, loss)
        for window in stepped(recording)
        if (loss := joined.get(window.step.index, window.step.loss)) is not None
        and math.isfinite(loss)
    ]


def weighted_losses(recording: Recording) -> WeightedLosses:
    """Return the losses of a run's steps that have a backward."""
    return derived_once(recording, _weighted_losses)


def _weighted_losses(recording: Recording) -> WeightedLosses:
    known, made = losses_of_steps(recording), stepped(recording)
    kept = KeptSteps(recording)
    optimizers = {one.optimizer for one in made}
    spans = [one for one in kept.spans("loss", tuple(optimizers)) if one.bucket.count]
    if not spans:
        losses = [loss for _, loss in known]
        return WeightedLosses(
            values=losses,
            counts=[1.0] * len(losses),
            lowest=min(losses, default=math.inf),
            highest=max(losses, default=-math.inf),
        )
    scale = _scale(known, made)
    ordered = sorted(
        [
            *((step, loss, 1.0) for step, loss in _outside(known, spans)),
            *((one.first, scale * one.bucket.mean, one.bucket.count) for one in spans),
        ]
    )
    extremes = [
        *(loss for _, loss in known),
        *(scale * end for one in spans for end in (one.bucket.lowest, one.bucket.highest)),
    ]
    return WeightedLosses(
        values=[loss for _, loss, _ in ordered],
        counts=[count for _, _, count in ordered],
        lowest=min(extremes),
        highest=max(extremes),
    )


def _scale(known: Sequence[tuple[int, float]], made: Sequence[LoopWindow]) -> float:
    """Return the loss of a step as a multiple of that of its last backward, which summaries have.

    It is 1 if each step has one backward whose loss is not divided.
    """
    last = {window.step.index: window.step.loss for window in made}
    pairs = [(loss, own) for step, loss in known if (own := last[step]) is not None]
    recorded = fmean(own for _, own in pairs) if pairs else 0.0
    is_same = all(loss == own for loss, own in pairs)
    return 1.0 if is_same or not recorded else fmean(loss for loss, _ in pairs) / recorded


def _outside(
    known: Sequence[tuple[int, float]], spans: Sequence[Span]
) -> Iterator[tuple[int, float]]:
    """Yield the losses of the steps that are in no summary."""
    starts = [one.first for one in spans]
    for step, loss in known:
        at = bisect_right(starts, step) - 1
        if at < 0 or step >= spans[at].first + spans[at].count:
            yield step, loss
