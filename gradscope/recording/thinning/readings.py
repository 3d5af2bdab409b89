"""What summaries need of a step: its numbers, and whether its surroundings are worth keeping."""

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import inf, isfinite, isnan, log
from statistics import median

from gradscope.frozen import dataclass
from gradscope.recording.evidence.summaries import SeriesKind
from gradscope.recording.records import EventRecord
from gradscope.recording.repetitions import RepeatedSteps, is_repeated

_HISTORY = 128
"""Number of steps with which a number is compared, as rules on spikes do."""
_SPIKE = 3.0
"""Multiple of the usual number: rules report nothing below it."""
_LEAST_JUMP = 1.4
"""Multiple of the usual loss: rules see no jump below it."""
_JUMP, _DEVIATIONS = 1.5, 6.0
"""Multiple of the usual loss, and robust standard deviations above it, from which it jumps."""
_SPIKE_NORM, _BEYOND = 4.0, 2.0
"""Multiples of the usual norm and of the largest one from which a norm is a spike, if it also is an
outlier of `_DEVIATIONS` on the logarithmic scale."""
_MOST = 1e5
"""Largest importance of a number that is only large. Those that rules report are more important by
as much: only they have a finding to lose. Both come behind steps that a large update leads.
"""
_ALWAYS = 1e6
"""Importance of what is broken, beside the multiples of numbers that are only large."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of a step."""

    step: int
    optimizer: int | None
    numbers: Mapping[SeriesKind, float]
    importance: float = 0.0
    """How much the step and those around it are worth; 0 for a usual step."""
    cosines: Mapping[int, float] = field(default_factory=dict)
    """By line of a clip: cosine between the gradient before and after it."""
    loss_jumps: bool = False
    """Whether the loss is an outlier above those of the steps before."""
    trouble: float = 0.0
    """Part of it that comes of broken or large numbers, not of events that are new."""


@dataclass(slots=True)
class _Recent:
    """The last numbers of an optimizer."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    rate: float | None = None


_Key = tuple[tuple[str, int | None, int | None, int], ...]


class Readings:
    """Reads the steps of a run in their order."""

    def __init__(self) -> None:
        self._recent: dict[int | None, _Recent] = {}
        self._kinds: dict[_Key, int] = {}
        """By sequence of events: number of steps since it was seen first."""
        self._told: dict[str, int] = {}
        """By kind of trouble: how often it came."""

    def of_step(self, step: int, events: Sequence[EventRecord]) -> Reading:
        """Return the reading of a step that was recorded in full."""
        optimizer: int | None = None
        numbers: dict[SeriesKind, float] = {}
        trouble = ""
        cosines: dict[int, float] = {}
        for event in events:
            known = dict(event.numbers)
            if event.kind == "backward" and "loss" in known:
                numbers["loss"] = known["loss"]
            elif event.kind == "step":
                optimizer = event.optimizer
                numbers |= {"norm": known["norm"]} if "norm" in known else {}
                numbers |= {"rate": known["lr"]} if "lr" in known else {}
                trouble = "nonfinite" if known.get("nonfinite") else trouble
            elif event.kind in ("clip-norm", "clip-value") and "norm" in known:
                # A scaler's factor changes, so that such norms cannot be compared with others.
                if not known.get("scaled"):
                    # A clip may be called for each group of parameters.
                    numbers["raw"] = max(numbers.get("raw", -inf), known["norm"])
                if event.site is not None and known.get("fresh") and isfinite(known["norm"]):
                    cosines |= {event.site: known["cosine"]} if "cosine" in known else {}
            elif event.kind.endswith("-error") or known.get("skipped"):
                trouble = event.kind
        risen, jumps = self._of_numbers(optimizer, numbers)
        worst = max(self._of_trouble(trouble), risen)
        importance = max(worst, self._of_kind(events), self._of_rate(optimizer, numbers))
        return Reading(step, optimizer, numbers, importance, cosines, jumps, worst)

    def of_repeated(
        self, one: RepeatedSteps, sources: Mapping[int, Sequence[EventRecord]]
    ) -> Iterator[Reading]:
        """Yield the readings of steps that repeat others."""
        shapes = [_Shape.of(sources[index]) for index in one.sources]
        losses = iter(array("d", one.losses))
        for order, (choice, rate) in enumerate(
            zip(array("H", one.choices), array("d", one.rates), strict=True)
        ):
            shape = shapes[choice]
            numbers: dict[SeriesKind, float] = {}
            for _ in range(shape.losses):
                loss = next(losses, inf)
                if not isnan(loss):
                    numbers["loss"] = loss
            if not isnan(rate):
                numbers["rate"] = rate
            worst, jumps = self._of_numbers(shape.optimizer, numbers)
            importance = max(worst, self._of_rate(shape.optimizer, numbers))
            yield Reading(
                one.first + order,
                shape.optimizer,
                numbers,
                importance,
                loss_jumps=jumps,
                trouble=worst,
            )

    def _of_trouble(self, trouble: str) -> float:
        """Return the importance of a kind of trouble: the first ones tell most."""
        if not trouble:
            return 0.0
        self._told[trouble] = self._told.get(trouble, 0) + 1
        # Ever less, so that trouble in each step does not take all room from other kinds.
        return _ALWAYS / self._told[trouble]

    def _of_kind(self, events: Sequence[EventRecord]) -> float:
        """Return the importance of a sequence of events: that of one not seen before."""
        key = tuple(
            (event.kind, event.site, event.optimizer, bool(event.numbers))
            for event in events
            if is_repeated(event.kind)
        )
        # A script whose steps all differ would make every step important.
        if key in self._kinds or len(self._kinds) > _HISTORY:
            return 0.0
        self._kinds[key] = len(self._kinds)
        return _ALWAYS / 2 / len(self._kinds)

    def _of_numbers(
        self, optimizer: int | None, numbers: Mapping[SeriesKind, float]
    ) -> tuple[float, bool]:
        """Return the importance of numbers, and whether the loss jumps."""
        recent = self._recent_of(optimizer)
        importance, jumps = 0.0, False
        if (loss := numbers.get("loss")) is not None:
            risen = self._rise(loss, recent.losses, _LEAST_JUMP)
            # A loss that is not finite is not among them: it is trouble of its own.
            jumps = risen > 0 and isfinite(loss) and _is_outlier(list(recent.losses))
            importance = _weighed(risen, loss, is_reported=jumps)
        if (norm := numbers.get("raw", numbers.get("norm"))) is not None:
            risen = self._rise(norm, recent.norms, _SPIKE)
            is_spike = risen > 0 and isfinite(norm) and _is_spike(list(recent.norms))
            importance = max(importance, _weighed(risen, norm, is_reported=is_spike))
        return importance, jumps

    def _of_rate(self, optimizer: int | None, numbers: Mapping[SeriesKind, float]) -> float:
        recent = self._recent_of(optimizer)
        rate, recent.rate = recent.rate, numbers.get("rate", recent.rate)
        # Schedules change the rate a little in each step: only jumps are of interest.
        is_jump = rate and recent.rate and not 0.5 < recent.rate / rate < 2
        return 2.0 if is_jump else 0.0

    def _recent_of(self, optimizer: int | None) -> _Recent:
        recent = self._recent.get(optimizer)
        if recent is None:
            recent = self._recent[optimizer] = _Recent()
        return recent

    def _rise(self, value: float, before: deque[float], factor: float) -> float:
        """Return how many times the usual number it is; 0 for a usual one."""
        if not isfinite(value):
            return self._of_trouble("broken number")
        # Most numbers are below the last one or one before: the first comparison is the cheapest.
        is_above = len(before) >= 20 and value > before[-1] and value > max(before)
        usual = abs(median(before)) if is_above else 0.0
        before.append(value)
        return abs(value) / max(usual, 1e-30) if is_above and abs(value) > factor * usual else 0.0


def _weighed(risen: float, value: float, *, is_reported: bool) -> float:
    """Return the importance of a number that is so many times the usual one."""
    if not isfinite(value):
        return risen  # it has that of a broken number
    return min(risen, _MOST) + (_MOST if is_reported else 0.0)


def _is_outlier(values: Sequence[float], least: float = _JUMP - 1) -> bool:
    """Return whether the last number lies far above the usual one before.

    Args:
        values: The numbers.
        least: Smallest rise, as a share of the usual number.
    """
    *before, value = values
    if not isfinite(value) or len(before) < 2:
        return False
    usual = median(before)
    # The factor makes it the standard deviation for normally distributed numbers.
    deviation = 1.4826 * median(abs(one - usual) for one in before)
    return value - usual > max(_DEVIATIONS * deviation, least * abs(usual))


def _is_spike(norms: Sequence[float]) -> bool:
    """Return whether the last norm is one that rules report as a spike."""
    *before, norm = norms
    if norm <= max(_BEYOND * max(before), _SPIKE_NORM * median(before)):
        return False
    return _is_outlier([log(one) for one in norms if one > 0], 0.0)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What repeated steps share with their source."""

    optimizer: int | None
    losses: int
    """Number of backward passes whose losses are read."""

    @classmethod
    def of(cls, events: Sequence[EventRecord]) -> "_Shape":
        steps = [event.optimizer for event in events if event.kind == "step"]
        losses = sum(
            any(name == "loss" for name, _ in event.numbers)
            for event in events
            if event.kind == "backward"
        )
        return cls(steps[-1] if steps else None, losses)


_SOURCES = 1_000
"""Number of steps that others may repeat whose events are in memory."""


class ReadingsOfAll:
    """Reads the steps of a run of which every one is kept: those with events matter."""

    def __init__(self) -> None:
        self._readings = Readings()
        self._sources: dict[int, Sequence[EventRecord]] = {}
        """By step: its events. The one that was repeated last comes last."""

    def of_step(self, step: int, events: Sequence[EventRecord]) -> list[Reading]:
        """Return the reading of a step that was recorded in full; nothing without an event."""
        self._sources[step] = events
        if len(self._sources) > _SOURCES:
            # Dicts keep the order of insertion: the first one was unused for longest.
            del self._sources[next(iter(self._sources))]
        reading = self._readings.of_step(step, events)
        return [reading] if reading.importance else []

    def of_repeated(self, one: RepeatedSteps) -> list[Reading]:
        """Return the readings of the steps with events among those that repeat others."""
        # Taken out, and put in again at the end.
        known = {step: self._sources.pop(step, None) for step in one.sources}
        sources = {step: events for step, events in known.items() if events is not None}
        self._sources.update(sources)
        if len(sources) < len(known):
            return []  # they were not repeated for long
        return [found for found in self._readings.of_repeated(one, sources) if found.importance]
