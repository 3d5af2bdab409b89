"""A run in windows: what happened on the way to each optimizer step, in the order of the loop.

A step that a gradient scaler skips is a window too, although the optimizer made none.

A recording counts an event to the step after it. What a loop does behind its step, as a scheduler
or a `zero_grad` at the end, is counted to the step before it here: the first window of a run would
look unlike all others otherwise.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from gradscope.recording.records import EventRecord, Recording, StepRecord

_UNSEEN = frozenset({"carried", "epoch", "kept", "mode"})
"""Kinds of events that are no part of a step."""

_BETWEEN = frozenset({"zero", "scheduler", "scaler-step", "scaler-update"})
"""Kinds of events that may belong to the step before or to the one after them."""

_Key = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What led to an optimizer step, that step, and what the loop did behind it."""

    step: StepRecord
    """Step that ends the window; the next one if the step was skipped."""
    optimizer: int | None
    """Index among the `TrainedOptimizer` records; None if unknown, or if no step follows."""
    events: tuple[EventRecord, ...]
    is_skipped: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether it came to a step of an optimizer, or one that was skipped."""
        return self.is_skipped or self.step.optimizer is not None

    @property
    def last(self) -> EventRecord | None:
        """The event of the step itself; where it came to none, the last one."""
        steps = [event for event in self.events if event.kind == "step" or _is_skipped(event)]
        return steps[-1] if steps else self.events[-1] if self.events else None


def windows(recording: Recording) -> tuple[Window, ...]:
    """Return the windows of a run, in order; none of a recording that is no run."""
    events: dict[int, list[EventRecord]] = {
        step.index: [] for step in recording.steps if step.kind == "run"
    }
    for event in recording.events:
        if event.step in events and event.kind not in _UNSEEN:
            events[event.step].append(event)
    return _in_loop_order(
        window
        for step in recording.steps
        if step.index in events
        for window in _windows(step, events[step.index])
    )


def _windows(step: StepRecord, events: list[EventRecord]) -> Iterator[Window]:
    """Yield what led to a step, after what led to those that were skipped before it."""
    events.sort(key=lambda event: event.order)
    start = 0
    for end, event in enumerate(events, 1):
        if _is_skipped(event) and event.optimizer is not None:
            skipped = tuple(events[start:end])
            yield Window(step=step, optimizer=event.optimizer, events=skipped, is_skipped=True)
            start = end
    steps = [event for event in events if event.kind == "step"]
    optimizer = steps[-1].optimizer if steps else None
    yield Window(step=step, optimizer=optimizer, events=tuple(events[start:]))


def _is_skipped(event: EventRecord) -> bool:
    return event.kind == "scaler-step" and ("skipped", 1.0) in event.numbers


def _in_loop_order(found: Iterable[Window]) -> tuple[Window, ...]:
    """Move what the loop does behind a step to that step's window."""
    ordered: list[Window] = []
    starts: dict[int | None, set[_Key]] = {}
    for window in found:
        lead = tuple(_lead(window))
        before = ordered[-1] if ordered else None
        if before is None:
            starts[window.optimizer] = {_key(event) for event in _opening(window)}
            ordered.append(window)
            continue
        if window.is_finished and window.optimizer not in starts:
            starts[window.optimizer] = {
                _key(event) for event in _opening(window) if not _is_of(event, before, window)
            }
        known = _starts(window, starts)
        behind = max(
            (position for position, event in enumerate(lead, 1) if _key(event) not in known),
            default=0,
        )
        if behind:
            ordered[-1] = replace(before, events=before.events + lead[:behind])
            window = replace(window, events=window.events[behind:])
        if window.is_finished or window.events:
            ordered.append(window)
    return tuple(ordered)


def _starts(window: Window, starts: dict[int | None, set[_Key]]) -> set[_Key]:
    """Return what windows of this optimizer start with; of every one where it led to no step."""
    if window.is_finished:
        return starts[window.optimizer]
    return set().union(*starts.values())


def _lead(window: Window) -> Iterator[EventRecord]:
    """Yield the events before the first that has to do with a new gradient or with a step."""
    return takewhile(lambda event: event.kind in _BETWEEN, window.events)


def _opening(window: Window) -> Iterator[EventRecord]:
    """Yield the same, those behind an `autograd.grad` too: not every step need have one."""
    events = (event for event in window.events if event.kind != "grad")
    return takewhile(lambda event: event.kind in _BETWEEN, events)


def _key(event: EventRecord) -> _Key:
    return (event.kind, event.site, event.optimizer)


def _is_of(event: EventRecord, before: Window, window: Window) -> bool:
    """Whether an event has to do with the optimizer before alone, and not with this window's."""
    return event.optimizer is not None and event.optimizer == before.optimizer != window.optimizer
