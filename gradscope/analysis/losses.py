"""The losses of a run by step: as its script knows them, over long runs, and on one batch."""

import dataclasses
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from statistics import fmean
from typing import Literal, Self

from gradscope.analysis.kept_steps import KeptSteps, Span
from gradscope.analysis.loop_windows import LoopWindow, windows
from gradscope.analysis.recording_index import derived_once
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, Event, only
from gradscope.recording.evidence.training import OverfitRecord
from gradscope.recording.records import Recording

Outcome = Literal["learned", "still falling", "stuck", "diverged"]

_RISEN = 2.0
"""Multiple of the first loss above which the training diverged."""
_PROGRESS = 0.01
"""A loss is stuck if it falls by less than this share over half of all steps."""
_STILL = 1e-6
"""Parameters that moved by less than this share of their norm count as unmoved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLosses:
    """The losses of the steps of a run.

    Passes that start at one statement, with a forward each, are micro-batches: the loss is the mean
    of theirs, without the division by their number, or the sum where each is a sum itself. Losses
    of several statements are added up, as their gradients are.
    """

    by_step: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """Losses of steps of several passes that all have a known one; of others the recorded is it."""
    most_passes: int = 1
    """Largest number of micro-batches in a step."""
    statements: int = 1
    """Largest number of statements in a step at which a backward starts."""
    is_uniform: bool = True
    """Whether all steps have as many."""
    is_summed: bool = False
    """Whether the losses of micro-batches are summed."""
    divisor: float | None = None
    """Number by which every loss is divided that is no number of micro-batches."""

    @classmethod
    def of(cls, found: Iterable[LoopWindow]) -> Self:
        """Return the losses of the steps that end these windows."""
        passes = {
            window.step.index: tuple(only(BackwardEvent, window.events))
            for window in found
            if window.is_finished and not window.is_skipped
        }
        every = [event for events in passes.values() for event in events]
        groups = [group for events in passes.values() for group in _by_statement(events)]
        counts = {len(_by_statement(events)) for events in passes.values() if events}
        divided = _division(groups)
        losses = {step: _made_loss(events, divided) for step, events in passes.items()}
        divisors = {1.0 if event.divided is None else event.divided for event in every}
        (divisor,) = divisors if len(divisors) == 1 else (1.0,)
        return cls(
            by_step={step: loss for step, loss in losses.items() if loss is not None},
            most_passes=max(map(len, groups), default=1),
            statements=max(counts, default=1),
            is_uniform=len(counts) < 2,
            is_summed=any(_is_sum(group) for group in groups if len(group) > 1),
            divisor=None if divisor in (1, divided) else divisor,
        )

    @property
    def text(self) -> str:
        """How a step's loss is made of those of its passes; empty if it has a single one."""
        parts = []
        if self.most_passes > 1:
            most = f"{self.most_passes:,}"
            is_sum = self.is_summed
            parts.append(f"sum of {most} passes" if is_sum else f"mean over {most} micro-batches")
        if self.statements > 1:
            parts.append(f"sum of {'' if self.is_uniform else 'up to '}{self.statements:,} losses")
        if self.divisor is not None:
            parts.append(f"as passed to backward(), divided by {self.divisor:g}")
        return ", ".join(parts)


class Divisions:
    """The number by which losses are divided, of steps that are read one after the other."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()

    def noted(self, found: Iterable[LoopWindow]) -> Iterator[LoopWindow]:
        """Yield windows, and take note of their losses."""
        for window in found:
            if window.is_finished and not window.is_skipped:
                self._counts.update(_divisions(_by_statement(only(BackwardEvent, window.events))))
            yield window

    def loss_of(self, window: LoopWindow) -> float | None:
        """Return the loss of the step of a window; None if the recorded is it."""
        divided = self._counts.most_common(1)[0][0] if self._counts else None
        return _made_loss(tuple(only(BackwardEvent, window.events)), divided)


def _made_loss(events: Sequence[BackwardEvent], divided: float | None) -> float | None:
    """Return the loss of a step of several passes, or of a part of one that is divided."""
    if len(events) > 1 or (divided is not None and events and events[0].divided == divided):
        return loss_of(events, divided)
    return None


def loss_of(events: Iterable[Event], divided: float | None = None) -> float | None:
    """Return the loss of a step with these events; None if that of a pass is not known.

    Args:
        events: Events of the step.
        divided: Number by which the script divides the losses of micro-batches; None if unknown.
    """
    groups = _by_statement(only(BackwardEvent, events))
    divided = _division(groups) if divided is None else divided
    found = [_loss_of(group, divided) for group in groups]
    known = [loss for loss in found if loss is not None]
    # A sum that lacks a pass would look like a drop of the loss.
    return math.fsum(known) if known and len(known) == len(found) else None


def _by_statement(passes: Iterable[BackwardEvent]) -> list[list[BackwardEvent]]:
    found: dict[tuple[int | None, str], list[BackwardEvent]] = {}
    for event in passes:
        found.setdefault((event.site, event.subject), []).append(event)
    return list(found.values())


def _loss_of(group: list[BackwardEvent], divided: float | None) -> float | None:
    losses = [event.loss for event in group if event.loss is not None]
    if len(losses) < len(group):
        return None
    total = math.fsum(losses)
    if len(group) > 1 and _is_sum(group):
        return total
    is_divided = divided is not None and all(event.divided == divided for event in group)
    return total / len(group) * (divided if is_divided and divided is not None else 1.0)


def _is_sum(group: list[BackwardEvent]) -> bool:
    """Return whether losses are sums, or parts of one forward, rather than means of batches."""
    is_one_forward = not all(event.has_forward for event in group)
    return is_one_forward or all(event.reduction == 0.0 for event in group)


def _division(groups: Iterable[list[BackwardEvent]]) -> float | None:
    """Return the number by which losses are divided since a step has as many micro-batches."""
    counts = Counter(_divisions(groups))
    # The last step of an epoch often has fewer, so the most frequent number counts.
    return counts.most_common(1)[0][0] if counts else None


def _divisions(groups: Iterable[list[BackwardEvent]]) -> Iterator[float]:
    for group in groups:
        if len(group) > 1 and all(event.divided == len(group) for event in group):
            yield float(len(group))


def step_losses(recording: Recording) -> StepLosses:
    """Return the losses of the whole steps of a run."""
    return derived_once(recording, _step_losses)


def _step_losses(recording: Recording) -> StepLosses:
    return StepLosses.of(windows(recording))


def known_losses(recording: Recording) -> tuple[tuple[int, float], ...]:
    """Return the steps of a run with their losses, of those that have one."""
    made = step_losses(recording).by_step
    stepped = (step for step in recording.steps if step.optimizer is not None)
    losses = ((step.index, made.get(step.index, step.loss)) for step in stepped)
    return tuple((step, loss) for step, loss in losses if loss is not None)


@dataclasses.dataclass(frozen=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit:
    """A training on one batch, and its result."""

    record: OverfitRecord
    outcome: Outcome
    since: int | None
    """Step after which the loss made no progress; None unless it is stuck."""
    still: tuple[int, ...]
    """Parameters that require grad and did not move."""

    @classmethod
    def of(cls, recording: Recording) -> Self | None:
        """Return the training in a recording; None if there is none."""
        for record in recording.evidence_of(OverfitRecord):
            outcome = _outcome(record)
            return cls(
                record=record,
                outcome=outcome,
                since=_last_progress(record.losses) if outcome == "stuck" else None,
                still=tuple(
                    index
                    for index, moved in enumerate(record.moved)
                    if moved is not None and moved < _STILL
                ),
            )
        return None

    @property
    def steps(self) -> int:
        """Number of optimizer steps."""
        return len(self.record.losses) - 1


def _outcome(record: OverfitRecord) -> Outcome:
    losses = record.losses
    first, last = losses[0], losses[-1]
    # A negative loss, as a log-likelihood, has no multiple that is worse: it may rise by 1.
    if not math.isfinite(last) or last > _RISEN * max(first, 0.0) + (1.0 if first <= 0 else 0.0):
        return "diverged"
    # A loss that may be negative has no zero to come near to.
    if 0 <= last <= record.learned * first:
        return "learned"
    return "stuck" if _last_progress(losses) <= (len(losses) - 1) / 2 else "still falling"


def _last_progress(losses: tuple[float, ...]) -> int:
    """Return the last step at which the lowest loss so far had fallen by a share of itself."""
    last, mark, lowest = 0, losses[0], losses[0]
    for step, loss in enumerate(losses):
        lowest = min(lowest, loss)
        if mark - lowest > _PROGRESS * abs(mark):
            last, mark = step, lowest
    return last
