"""A training run in windows in the order of the loop: they do not overlap, each has one step."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.recording_index import RecordingIndex, derived_once
from gradscope.analysis.windows import Segment, Windows, is_skipped, segments
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    CarriedEvent,
    EpochEvent,
    Event,
    GradEvent,
    KeptEvent,
    ModeEvent,
    ScalerStepEvent,
    ScalerUpdateEvent,
    SchedulerEvent,
    StepEvent,
    ZeroEvent,
)
from gradscope.recording.records import Recording, StepRecord

_Key = tuple[str, int | None, int | None]

_BETWEEN = (ZeroEvent, SchedulerEvent, ScalerStepEvent, ScalerUpdateEvent)
"""Events that may belong to the step before or to the one after them."""

_UNSEEN = (CarriedEvent, ModeEvent, EpochEvent, KeptEvent)
"""Events outside any step of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWindow:
    """The events before an optimizer step, the step, and the events of the loop after it.

    A step that a gradient scaler skips has a window too, although the optimizer made none. A
    recording counts an event to the step after it. What a loop does behind its step, as a scheduler
    or a `zero_grad` at the end, is counted to the step before it here: the first window of a run
    would look unlike all others otherwise.
    """

    step: StepRecord
    """Step that ends the window; the next one if the step was skipped."""
    optimizer: int | None
    """Index among the `TrainedOptimizer` records; None if unknown, or if no step follows."""
    events: tuple[Event, ...]
    is_skipped: bool = False
    count: int = 1
    """Number of steps of a long run that it stands for."""

    @property
    def is_finished(self) -> bool:
        """Whether it ends with a step of an optimizer, made or skipped."""
        return self.is_skipped or self.step.optimizer is not None

    @property
    def last(self) -> Event | None:
        """Event of the step; without one, the last event."""
        steps = [
            event for event in self.events if isinstance(event, StepEvent) or is_skipped(event)
        ]
        return steps[-1] if steps else self.events[-1] if self.events else None


def windows(recording: Recording) -> tuple[LoopWindow, ...]:
    """Return the windows of a run in the order of the loop; none of a recording that is no run."""
    return derived_once(recording, _windows)


def _windows(recording: Recording) -> tuple[LoopWindow, ...]:
    whole = Windows(RecordingIndex(recording))
    found: dict[int, list[Segment]] = {
        step.index: [] for step in recording.steps if step.kind == "run"
    }
    for segment in whole.segments:
        if segment.end.step in found:
            found[segment.end.step].append(segment)
    ordered = _in_loop_order(
        (
            window
            for step in recording.steps
            if step.index in found
            for window in _loop_windows(step, found[step.index])
        ),
        whole.kept.resumed,
    )
    return tuple(_counted(ordered, whole.kept) if whole.kept.paused else ordered)


def windows_of(steps: Iterable[tuple[StepRecord, Iterable[Event]]]) -> Iterator[LoopWindow]:
    """Yield the windows of steps with their events; memory holds two of them."""
    found = (one for step, events in steps for one in _loop_windows(step, segments(events)))
    return _in_loop_order(found, ())


def _counted(ordered: Iterable[LoopWindow], kept: KeptSteps) -> Iterator[LoopWindow]:
    """Yield the windows that are whole, with the number of steps that each stands for."""
    for window in ordered:
        # What the loop does behind a step is counted to the next, which is missing here.
        if window.step.index + 1 not in kept.paused:
            yield replace(window, count=kept.counts.get(window.step.index, 1))


def _loop_windows(step: StepRecord, found: Iterable[Segment]) -> Iterator[LoopWindow]:
    """Yield the window of a step, after the windows of the skipped steps before it."""
    events: list[Event] = []
    optimizer = None
    for segment in found:
        events += (event for event in segment.events if not isinstance(event, _UNSEEN))
        end = segment.end
        if isinstance(end, StepEvent):
            optimizer = end.optimizer
        elif is_skipped(end) and end.optimizer is not None:
            yield LoopWindow(
                step=step, optimizer=end.optimizer, events=tuple(events), is_skipped=True
            )
            events = []
    yield LoopWindow(step=step, optimizer=optimizer, events=tuple(events))


def _in_loop_order(found: Iterable[LoopWindow], resumed: Container[int]) -> Iterator[LoopWindow]:
    """Move the events of the loop after a step to that step's window.

    Args:
        found: The windows.
        resumed: Steps whose step before is missing: it is not known what belongs to that.
    """
    before: LoopWindow | None = None
    starts: dict[int | None, set[_Key]] = {}
    for window in found:
        lead = tuple(_lead(window))
        # What opens an optimizer's first window precedes its gradient in every later one. Anything
        # else at the head of a window belongs behind the step before.
        if before is None:
            starts[window.optimizer] = {_key(event) for event in _opening(window)}
            before = window
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
            if window.step.index not in resumed:
                before = replace(before, events=before.events + lead[:behind])
            window = replace(window, events=window.events[behind:])
        if window.is_finished or window.events:
            yield before
            before = window
    if before is not None:
        yield before


def _starts(window: LoopWindow, starts: dict[int | None, set[_Key]]) -> set[_Key]:
    """Return the first events of this optimizer's windows; of all windows without a step."""
    if window.is_finished:
        return starts[window.optimizer]
    return set().union(*starts.values())


def _lead(window: LoopWindow) -> Iterator[Event]:
    """Yield the events before the first that has to do with a new gradient or with a step."""
    return takewhile(lambda event: isinstance(event, _BETWEEN), window.events)


def _opening(window: LoopWindow) -> Iterator[Event]:
    """Yield the same after an `autograd.grad`: not every step need have one."""
    events = (event for event in window.events if not isinstance(event, GradEvent))
    return takewhile(lambda event: isinstance(event, _BETWEEN), events)


def _key(event: Event) -> _Key:
    return (event.kind, event.site, event.optimizer)


def _is_of(event: Event, before: LoopWindow, window: LoopWindow) -> bool:
    """Whether an event has to do with the optimizer before alone, and not with this window's."""
    return event.optimizer is not None and event.optimizer == before.optimizer != window.optimizer
