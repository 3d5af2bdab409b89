"""The loss of each step of a run as its script knows it, from the losses of its backward passes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Self

from gradscope.analysis.loop_windows import LoopWindow, windows
from gradscope.analysis.recording_index import derived_once
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, Event, only
from gradscope.recording.records import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLosses:
    """The losses of the steps of a run.

    Passes that start at one statement, with a forward each, are micro-batches: the loss is the mean
    of theirs, without the division by their number, or the sum where each is a sum itself. Losses
    of several statements are added up, as their gradients are.
    """

    by_step: Mapping[int, float] = field(default_factory=dict)
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
