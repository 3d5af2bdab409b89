"""A training run in windows: the events before each step.

The events of a run are cut once into segments. A segment ends with a step, with a step that a
gradient scaler skipped, or where the recording counts events to another step. Two views put the
segments together. For an optimizer, a window holds all segments since its own step before. In the
order of the loop, windows do not overlap, and each has one step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from operator import attrgetter

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.events import (
    BackwardEvent,
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
    event_of,
    only,
)
from gradscope.recording.evidence.training import OptimizerFamily, TrainedOptimizer
from gradscope.recording.records import Recording, StepRecord

_UNSEEN = (CarriedEvent, ModeEvent, EpochEvent, KeptEvent)
"""Events outside any step of the loop."""

_BETWEEN = (ZeroEvent, SchedulerEvent, ScalerStepEvent, ScalerUpdateEvent)
"""Events that may belong to the step before or to the one after them."""

_Key = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive events that the recording counts to one step."""

    events: tuple[Event, ...]

    @property
    def end(self) -> Event:
        """The step that ends it, made or skipped; the last event if it led to none."""
        return self.events[-1]


def segments(events: Iterable[Event]) -> Iterator[Segment]:
    """Yield the segments of events, none of them empty."""
    part: list[Event] = []
    for event in events:
        if part and part[-1].step != event.step:
            yield Segment(events=tuple(part))
            part = []
        part.append(event)
        if isinstance(event, StepEvent) or _is_skipped(event):
            yield Segment(events=tuple(part))
            part = []
    if part:
        yield Segment(events=tuple(part))


def _is_skipped(event: Event) -> bool:
    return isinstance(event, ScalerStepEvent) and event.skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The events before a step of an optimizer; windows of other optimizers may overlap it."""

    step: StepEvent
    events: tuple[Event, ...]
    """Events since the optimizer's previous step, steps of others included."""
    passes: tuple[BackwardEvent, ...]
    """Backward passes among them whose gradients the step uses."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no gradient for the step: none at all, or nothing but zeros."""
        if self.step.manual:
            return False
        if self.step.none >= self.step.parameters:
            return True
        is_used = self.step.fresh or self.step.stale
        return not is_used and not self.step.norm

    @property
    def reuses_gradients(self) -> bool:
        """Whether the step uses gradients again that an earlier one has used."""
        passes = only(BackwardEvent, self.events)
        if self.step.backwards is None:  # weights that the script moves itself
            return any(0 < one.reached == one.stale for one in passes)
        return 0 < len(list(passes)) < self.step.backwards

    def zeros(self, optimizers: Sequence[int]) -> list[ZeroEvent]:
        """Return the times when gradients of some optimizers may have been zeroed."""
        return [
            event
            for event in only(ZeroEvent, self.events)
            if event.optimizer is None or event.optimizer in optimizers
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """All steps of an optimizer, and of those that replaced it at the same line."""

    optimizers: tuple[int, ...]
    """Indices among the optimizers of the run; empty if the script itself changes weights."""
    record: TrainedOptimizer | None
    """Record of the first of the optimizers; None without any."""
    windows: tuple[Window, ...]
    generations: int = 1
    """Number of optimizers that replaced each other."""

    @property
    def name(self) -> str:
        """Name of the optimizer, or of the update."""
        return "the update" if self.record is None else self.record.name

    @property
    def parameters(self) -> tuple[int, ...]:
        """Parameters that the optimizers hold."""
        return () if self.record is None else self.record.parameters

    def may_lose(self, event: Event) -> bool:
        """Return whether an event may zero gradients of its own that no step has used."""
        is_own = event.optimizer is None or event.optimizer in self.optimizers
        return isinstance(event, ZeroEvent) and is_own and event.unspent > 0

    @property
    def family(self) -> OptimizerFamily:
        """Family of the optimizer; a script that moves weights itself does as SGD."""
        return "sgd" if self.record is None else self.record.family


@dataclass(frozen=True)
class Windows:
    """The steps of a run."""

    indexed: RecordingIndex

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All that the script did, in order."""
        records = sorted(self.indexed.recording.events, key=attrgetter("step", "order"))
        return tuple(event_of(record, position) for position, record in enumerate(records))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The events, cut once."""
        return tuple(segments(self.events))

    @cached_property
    def optimizers(self) -> tuple[TrainedOptimizer, ...]:
        """The optimizers of the run."""
        return self.indexed.recording.evidence_of(TrainedOptimizer)

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The steps by optimizer.

        Weights that the script moves itself are left out where there are optimizers: what is moved
        beside them, as averages and clamped weights are, is not moved by gradients.
        """
        positions = {
            lineage: tuple(
                position for position, one in enumerate(self._lineages) if one == lineage
            )
            for lineage in dict.fromkeys(self._lineages)
        }
        found = [self._series(members, lineage) for lineage, members in positions.items()]
        return tuple(found) if found else (self._series((), None),)

    @cached_property
    def first_pass(self) -> int | None:
        """Position of the first backward pass; None without any."""
        return next((event.position for event in only(BackwardEvent, self.events)), None)

    def requires_grad(self, series: Series) -> bool:
        """Return whether something that an optimizer holds is to be trained at all."""
        records = self.indexed.recording.parameters
        return not series.parameters or any(records[i].requires_grad for i in series.parameters)

    @cached_property
    def _lineages(self) -> tuple[int, ...]:
        """Lineage of each optimizer: the first of those that replaced each other at its line.

        An optimizer whose steps are part of another's has the lineage of the other.
        """
        return tuple(map(self._lineage, range(len(self.optimizers))))

    def _lineage(self, position: int) -> int:
        record = self.optimizers[position]
        if record.joined is not None:
            return self._lineage(record.joined)
        if record.replaced is None:
            return position
        before = self.optimizers[record.replaced]
        is_again = before.site == record.site and before.joined is None
        return self._lineage(record.replaced) if is_again else position

    def _series(self, members: tuple[int, ...], lineage: int | None) -> Series:
        record = None if lineage is None else self.optimizers[lineage]
        windows = []
        start = 0
        for number in self._own_segments.get(lineage, ()):
            *others, own = self.segments[start : number + 1]
            *before, step = own.events
            if isinstance(step, StepEvent):
                events = (*chain.from_iterable(one.events for one in others), *before)
                passes = _passes(events, step, members)
                windows.append(Window(step=step, events=events, passes=passes))
            start = number + 1
        generations = sum(self.optimizers[position].joined is None for position in members)
        return Series(
            optimizers=members, record=record, windows=tuple(windows), generations=generations
        )

    @cached_property
    def _own_segments(self) -> Mapping[int | None, Sequence[int]]:
        """By lineage: the segments that end with its steps, as indices."""
        found: dict[int | None, list[int]] = {}
        for number, segment in enumerate(self.segments):
            if isinstance(segment.end, StepEvent):
                optimizer = segment.end.optimizer
                lineage = None if optimizer is None else self._lineages[optimizer]
                found.setdefault(lineage, []).append(number)
        return found

    @cached_property
    def in_loop_order(self) -> tuple["LoopWindow", ...]:
        """The windows of the loop, in order; none of a recording that is no run."""
        found: dict[int, list[Segment]] = {
            step.index: [] for step in self.indexed.recording.steps if step.kind == "run"
        }
        for segment in self.segments:
            if segment.end.step in found:
                found[segment.end.step].append(segment)
        return _in_loop_order(
            window
            for step in self.indexed.recording.steps
            if step.index in found
            for window in _loop_windows(step, found[step.index])
        )


def _passes(
    events: Sequence[Event], step: StepEvent, members: tuple[int, ...]
) -> tuple[BackwardEvent, ...]:
    """Return the passes that feed a step: as many of the last ones as it says."""
    passes = tuple(only(BackwardEvent, events))
    if step.backwards is not None:
        return passes[-int(step.backwards) :] if step.backwards else ()
    whole = Window(step=step, events=tuple(events), passes=())
    zeroed = max((event.position for event in whole.zeros(members)), default=-1)
    return tuple(event for event in passes if event.position > zeroed)


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

    @property
    def is_finished(self) -> bool:
        """Whether it ends with a step of an optimizer, made or skipped."""
        return self.is_skipped or self.step.optimizer is not None

    @property
    def last(self) -> Event | None:
        """Event of the step; without one, the last event."""
        steps = [
            event for event in self.events if isinstance(event, StepEvent) or _is_skipped(event)
        ]
        return steps[-1] if steps else self.events[-1] if self.events else None


def windows(recording: Recording) -> tuple[LoopWindow, ...]:
    """Return the windows of a run in the order of the loop; none of a recording that is no run."""
    return Windows(RecordingIndex(recording)).in_loop_order


def _loop_windows(step: StepRecord, found: Iterable[Segment]) -> Iterator[LoopWindow]:
    """Yield the window of a step, after the windows of the skipped steps before it."""
    events: list[Event] = []
    optimizer = None
    for segment in found:
        events += (event for event in segment.events if not isinstance(event, _UNSEEN))
        end = segment.end
        if isinstance(end, StepEvent):
            optimizer = end.optimizer
        elif _is_skipped(end) and end.optimizer is not None:
            yield LoopWindow(
                step=step, optimizer=end.optimizer, events=tuple(events), is_skipped=True
            )
            events = []
    yield LoopWindow(step=step, optimizer=optimizer, events=tuple(events))


def _in_loop_order(found: Iterable[LoopWindow]) -> tuple[LoopWindow, ...]:
    """Move the events of the loop after a step to that step's window."""
    ordered: list[LoopWindow] = []
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
