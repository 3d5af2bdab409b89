"""A training run in windows: the events before each step of an optimizer.

The events of a run are cut once into segments. A segment ends with a step, with a step that a
gradient scaler skipped, or where the recording counts events to another step. For an optimizer, a
window holds all segments since its own step before; `loop_windows` has those of the loop.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter

from gradscope.analysis.kept_steps import KeptSteps, steps_of
from gradscope.analysis.recording_index import RecordingIndex, derived_once
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardEvent,
    Event,
    ScalerStepEvent,
    SchedulerEvent,
    StepEvent,
    ZeroEvent,
    event_of,
    only,
)
from gradscope.recording.evidence.training import OptimizerFamily, TrainedOptimizer
from gradscope.recording.records import Recording


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
        if isinstance(event, StepEvent) or is_skipped(event):
            yield Segment(events=tuple(part))
            part = []
    if part:
        yield Segment(events=tuple(part))


def is_skipped(event: Event) -> bool:
    """Return whether a gradient scaler has skipped a step here."""
    return isinstance(event, ScalerStepEvent) and event.skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The events before a step of an optimizer; windows of other optimizers may overlap it."""

    step: StepEvent
    events: tuple[Event, ...]
    """Events since the optimizer's previous step, steps of others included."""
    passes: tuple[BackwardEvent, ...]
    """Backward passes among them whose gradients the step uses."""
    count: int = 1
    """Number of steps of a long run that it stands for."""
    resumes: bool = False
    """Whether steps are missing between the optimizer's window before and this one."""

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

    @property
    def step_count(self) -> int:
        """Number of steps."""
        return steps_of(self.windows)

    @property
    def planned_steps(self) -> int | None:
        """Number of steps that the learning-rate schedule is planned for; None without one."""
        return None if self.record is None else self.record.planned_steps

    @property
    def scheduler_calls(self) -> Iterator[tuple[SchedulerEvent, int]]:
        """Steps of the schedule between the optimizer's steps, with their number."""
        for window in self.windows:
            for event in only(SchedulerEvent, window.events):
                if event.optimizer in (None, *self.optimizers):
                    yield event, window.count

    def may_lose(self, event: Event) -> bool:
        """Return whether an event may zero gradients of its own that no step has used."""
        is_own = event.optimizer is None or event.optimizer in self.optimizers
        return isinstance(event, ZeroEvent) and is_own and event.unspent > 0

    @property
    def family(self) -> OptimizerFamily:
        """Family of the optimizer; a script that moves weights itself does as SGD."""
        return "sgd" if self.record is None else self.record.family


def events_of(recording: Recording) -> tuple[Event, ...]:
    """Return all that a script did, in order."""
    records = sorted(recording.events, key=attrgetter("step", "order"))
    return tuple(event_of(record, position) for position, record in enumerate(records))


def _segments_of(recording: Recording) -> tuple[Segment, ...]:
    return tuple(segments(derived_once(recording, events_of)))


@dataclass(frozen=True)
class Windows:
    """The steps of a run."""

    indexed: RecordingIndex

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All that the script did, in order."""
        return derived_once(self.indexed.recording, events_of)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The events, cut once."""
        return derived_once(self.indexed.recording, _segments_of)

    @cached_property
    def kept(self) -> KeptSteps:
        """The steps that the recording has whole."""
        return KeptSteps(self.indexed.recording)

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
        is_again = (
            before.site == record.site
            and before.joined is None
            # A function may make several optimizers at one line, which then step in turns.
            and not self._steps_after(record.replaced, position)
        )
        return self._lineage(record.replaced) if is_again else position

    def _steps_after(self, optimizer: int, other: int) -> bool:
        """Return whether an optimizer still steps after the first step of another."""
        start, _ = self._stepping.get(other, (None, None))
        _, end = self._stepping.get(optimizer, (None, None))
        return start is not None and end is not None and end > start

    @cached_property
    def _stepping(self) -> dict[int, tuple[int, int]]:
        """By optimizer: the positions of its first and its last step."""
        found: dict[int, tuple[int, int]] = {}
        for event in only(StepEvent, self.events):
            if event.optimizer is not None:
                start, _ = found.get(event.optimizer, (event.position, 0))
                found[event.optimizer] = (start, event.position)
        return found

    def _series(self, members: tuple[int, ...], lineage: int | None) -> Series:
        record = None if lineage is None else self.optimizers[lineage]
        windows = []
        start, resumes = 0, False
        for number in self._own_segments.get(lineage, ()):
            *others, own = self.segments[start : number + 1]
            *before, step = own.events
            # Events of this window are missing, so nothing is said of it.
            if self._has_gap(start, number):
                resumes = True
            elif isinstance(step, StepEvent):
                events = (*chain.from_iterable(one.events for one in others), *before)
                passes = _passes(events, step, members)
                count = self.kept.counts.get(step.step, 1)
                window = Window(
                    step=step, events=events, passes=passes, count=count, resumes=resumes
                )
                windows.append(window)
                resumes = False
            start = number + 1
        generations = sum(self.optimizers[position].joined is None for position in members)
        return Series(
            optimizers=members, record=record, windows=tuple(windows), generations=generations
        )

    def _has_gap(self, first: int, last: int) -> bool:
        """Return whether steps are missing before one of the segments, or between them."""
        at = bisect_left(self._resumed, first)
        return at < len(self._resumed) and self._resumed[at] <= last

    @cached_property
    def _resumed(self) -> tuple[int, ...]:
        """The segments before which steps are missing."""
        return tuple(
            number
            for number, segment in enumerate(self.segments)
            if segment.end.step in self.kept.resumed
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


def _passes(
    events: Sequence[Event], step: StepEvent, members: tuple[int, ...]
) -> tuple[BackwardEvent, ...]:
    """Return the passes that feed a step: as many of the last ones as it says."""
    passes = tuple(only(BackwardEvent, events))
    if step.backwards is not None:
        # A slice from -0 would hold all passes.
        return passes[-int(step.backwards) :] if step.backwards else ()
    whole = Window(step=step, events=tuple(events), passes=())
    zeroed = max((event.position for event in whole.zeros(members)), default=-1)
    return tuple(event for event in passes if event.position > zeroed)
