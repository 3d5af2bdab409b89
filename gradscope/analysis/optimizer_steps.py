"""The steps of a training run, each with what led to it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import cast

from gradscope.analysis.recording_index import RecordingIndex
from gradscope.recording.event_numbers import NumberName
from gradscope.recording.evidence.optimizers import OptimizerFamily, TrainedOptimizer
from gradscope.recording.records import EventRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that a script did, with its numbers by name."""

    position: int
    """Index of the step in the run."""
    step: int
    kind: str
    site: int | None
    optimizer: int | None
    subject: str
    numbers: Mapping[NumberName, float] = field(repr=False)

    def number(self, name: NumberName) -> float | None:
        """Return a number, None where it is not known."""
        return self.numbers.get(name)

    def count(self, name: NumberName) -> int:
        """Return how many, none where that is not known."""
        return int(self.numbers.get(name, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What led to a step of an optimizer."""

    step: RunEvent
    events: tuple[RunEvent, ...]
    """All since the optimizer's own step before, steps of others included."""
    passes: tuple[RunEvent, ...]
    """The backward passes among them whose gradients feed the step."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no gradient for the step: none at all, or nothing but zeros."""
        if self.step.count("manual"):
            return False
        if self.step.count("none") >= self.step.count("parameters"):
            return True
        is_used = self.step.count("fresh") or self.step.count("stale")
        return not is_used and not self.step.number("norm")

    def zeros(self, optimizers: Sequence[int]) -> list[RunEvent]:
        """Return the times when gradients of some optimizers may have been zeroed."""
        return [
            event
            for event in self.events
            if event.kind == "zero" and (event.optimizer is None or event.optimizer in optimizers)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """All steps of an optimizer, and of those that took its place at the same line."""

    optimizers: tuple[int, ...]
    """Their places among the optimizers of the run; none where the script itself moves weights."""
    record: TrainedOptimizer | None
    """The first of them."""
    windows: tuple[Window, ...]
    generations: int = 1
    """Number of optimizers that replaced each other."""

    @property
    def name(self) -> str:
        """What it is called."""
        return "the update" if self.record is None else self.record.name

    @property
    def parameters(self) -> tuple[int, ...]:
        """Those that it holds."""
        return () if self.record is None else self.record.parameters

    def may_lose(self, event: RunEvent) -> bool:
        """Return whether an event may zero gradients of its own that no step has used."""
        is_own = event.optimizer is None or event.optimizer in self.optimizers
        return event.kind == "zero" and is_own and event.count("unspent") > 0

    @property
    def family(self) -> OptimizerFamily:
        """What kind of optimizer it is; a script that moves weights itself does as SGD."""
        return "sgd" if self.record is None else self.record.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The steps of an optimizer that show a mistake."""

    series: Series
    windows: tuple[Window, ...]
    """Windows concerned, at least one."""
    judged: int
    """Number of windows that were judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sightings of a mistake at one line."""

    site: int | None
    sightings: tuple[Sighting, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Windows that show the finding."""
        return tuple(window for one in self.sightings for window in one.windows)

    @property
    def judged(self) -> int:
        """Number of steps that were judged."""
        return sum(one.judged for one in self.sightings)

    @property
    def first(self) -> Window:
        """The first of them."""
        return min(self.windows, key=lambda window: window.step.position)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Those of the optimizers concerned."""
        held = (index for one in self.sightings for index in one.series.parameters)
        return tuple(dict.fromkeys(held))

    @property
    def words(self) -> str:
        """The steps in words: `9 of 10 steps`, or `all 10 steps`."""
        judged = "1 step" if self.judged == 1 else f"{self.judged:,} steps"
        if len(self.windows) == self.judged > 1:
            return f"all {judged}"
        return f"{len(self.windows):,} of {judged}"


def by_line(
    sightings: Iterable[Sighting], line: Callable[[Window], int | None]
) -> tuple[Group, ...]:
    """Return sightings together whose windows mostly point to the same line.

    Parameters may have an optimizer each, that all show the same mistake.
    """
    found: dict[int | None, list[Sighting]] = {}
    for one in sightings:
        site = most_common(line(window) for window in one.windows)
        found.setdefault(site, []).append(one)
    return tuple(Group(site=site, sightings=tuple(ones)) for site, ones in found.items())


def most_common(sites: Iterable[int | None]) -> int | None:
    """Return the line that is named most often, the first of those; None where none is known."""
    counts = Counter(site for site in sites if site is not None)
    return counts.most_common(1)[0][0] if counts else None


@dataclass(frozen=True)
class Windows:
    """The steps of a run."""

    indexed: RecordingIndex

    @cached_property
    def events(self) -> tuple[RunEvent, ...]:
        """All that the script did, in order."""
        records = sorted(self.indexed.recording.events, key=attrgetter("step", "order"))
        return tuple(_event(position, record) for position, record in enumerate(records))

    @cached_property
    def optimizers(self) -> tuple[TrainedOptimizer, ...]:
        """Those of the run."""
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
        """The place of the first backward pass."""
        return next((event.position for event in self.events if event.kind == "backward"), None)

    def requires_grad(self, series: Series) -> bool:
        """Return whether something that an optimizer holds is to be trained at all."""
        records = self.indexed.recording.parameters
        return not series.parameters or any(records[i].requires_grad for i in series.parameters)

    @cached_property
    def _lineages(self) -> tuple[int, ...]:
        """By optimizer: the first of those of the same line which it followed one by one.

        Of one whose steps are part of another's: the other's.
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
        for step in self._steps.get(lineage, ()):
            events = self.events[start : step.position]
            windows.append(Window(step=step, events=events, passes=_passes(events, step, members)))
            start = step.position + 1
        generations = sum(self.optimizers[position].joined is None for position in members)
        return Series(
            optimizers=members, record=record, windows=tuple(windows), generations=generations
        )

    @cached_property
    def _steps(self) -> Mapping[int | None, Sequence[RunEvent]]:
        """By lineage: its steps."""
        found: dict[int | None, list[RunEvent]] = {}
        for event in self.events:
            if event.kind == "step":
                lineage = None if event.optimizer is None else self._lineages[event.optimizer]
                found.setdefault(lineage, []).append(event)
        return found


def _event(position: int, record: EventRecord) -> RunEvent:
    return RunEvent(
        position=position,
        step=record.step,
        kind=record.kind,
        site=record.site,
        optimizer=record.optimizer,
        subject=record.subject,
        numbers=cast("Mapping[NumberName, float]", dict(record.numbers)),
    )


def _passes(
    events: Sequence[RunEvent], step: RunEvent, members: tuple[int, ...]
) -> tuple[RunEvent, ...]:
    """Return the passes that feed a step: as many of the last ones as it says."""
    passes = [event for event in events if event.kind == "backward"]
    number = step.number("backwards")
    if number is not None:
        return tuple(passes[-int(number) :]) if number else ()
    whole = Window(step=step, events=tuple(events), passes=())
    zeroed = max((event.position for event in whole.zeros(members)), default=-1)
    return tuple(event for event in passes if event.position > zeroed)
