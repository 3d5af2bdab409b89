"""Windows of a run as compact pictures: `zero → forward → backward → clip 1.0 → step`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gradscope.recording.records import EventRecord, Site
from gradscope.report.run.optimizers import Optimizers
from gradscope.report.run.repeats import Folds, folded, merged, shape_of
from gradscope.report.run.windows import Window

_WORDS = {
    "grad": "autograd.grad",
    "clip-value": "clip values",
    "scaler-update": "update scale",
}
"""What events are called in a picture, where not by the name of their kind."""
_LIMITS_TOLD = 4
"""Limits that differ more often than so are no part of a picture: they are computed anew."""
_USUAL = 0.5
"""Where no picture makes up this share, those are one that differ in repetitions alone."""
_LIMIT = {"clip-norm": "max_norm", "clip-value": "clip_value"}
"""By kind of event: the number that holds the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """What a function that clips measured."""

    median: float | None
    """Of the finite ones; None where none is."""
    nonfinite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Windows that are made of the same events."""

    optimizer: int | None
    """Place of the optimizer among the report's; None of windows that led to no step."""
    folds: Folds
    norms: tuple[tuple[str, Norms], ...]
    """By the word of the picture that clips: the norms before."""
    count: int
    """How many windows look so."""
    first: int
    """The first such step."""
    site: Site | None
    """The line of that step; of what led to no step, of the last event."""
    is_typical: bool
    """Whether most of the optimizer's windows look so."""


def pictures(
    found: Sequence[Window], optimizers: Optimizers, sites: Sequence[Site]
) -> tuple[Picture, ...]:
    """Return the pictures of each optimizer's windows, the most frequent first."""
    spelling = _Spelling(found, optimizers)
    by_optimizer: dict[int | None, list[Window]] = {}
    for window in found:
        by_optimizer.setdefault(optimizers.place(window), []).append(window)
    order = sorted(by_optimizer, key=lambda place: (place is None, place or 0))
    return tuple(
        picture
        for place in order
        for picture in _of_one(place, by_optimizer[place], spelling, sites)
    )


class _Spelling:
    """How events are called, given what else there is in the run."""

    def __init__(self, found: Iterable[Window], optimizers: Optimizers) -> None:
        self._optimizers = optimizers
        self._folds: dict[tuple[str, ...], Folds] = {}
        limits: dict[str, set[float | None]] = {kind: set() for kind in _LIMIT}
        for window in found:
            for event in window.events:
                if event.kind in limits:
                    limits[event.kind].add(_number(event, _LIMIT[event.kind]))
        self._told = {kind for kind, values in limits.items() if len(values) <= _LIMITS_TOLD}

    def folds(self, window: Window) -> Folds:
        """Return the window's events in words, repetitions as one."""
        words = tuple(self._words(window))
        known = self._folds.get(words)
        if known is None:
            known = self._folds[words] = folded(words)
        return known

    def _words(self, window: Window) -> Iterator[str]:
        for event in window.events:
            if event.kind == "backward" and _number(event, "rows") is not None:
                yield "forward"
            if word := self.word(event, window):
                yield word

    def word(self, event: EventRecord, window: Window) -> str:
        """Return an event's word; empty where it says nothing that its neighbours do not say."""
        word = _WORDS.get(event.kind, event.kind)
        match event.kind:
            case "scaler-step":
                return "skipped step" if _number(event, "skipped") else ""
            case "backward" if _number(event, "create"):
                return "backward with create_graph"
            case "clip-norm" | "clip-value":
                word = "clip values" if event.kind == "clip-value" else "clip"
                limit = _number(event, _LIMIT[event.kind])
                is_told = event.kind in self._told and limit is not None
                word = f"{word} {limit_text(limit or 0.0)}" if is_told else word
            case "zero" if event.subject == "outside":
                word = "zero by hand"
            case "step" if _number(event, "manual"):
                return "step by hand"
        return f"{word}{self._owner(event, window)}"

    def _owner(self, event: EventRecord, window: Window) -> str:
        """Return the optimizer of an event that has to do with another than the window's."""
        if event.optimizer is None or event.optimizer == window.optimizer:
            return ""
        name = self._optimizers.name(event.optimizer)
        return f" {name}" if name and len(self._optimizers.rows) > 1 else ""


def _of_one(
    place: int | None, found: list[Window], spelling: _Spelling, sites: Sequence[Site]
) -> Iterator[Picture]:
    """Yield the pictures of one optimizer's windows."""
    drawn = [spelling.folds(window) for window in found]
    counts = Counter(drawn)
    by_key: dict[object, list[int]] = {}
    is_varied = len(counts) > 2 and max(counts.values()) < _USUAL * len(drawn)
    for turn, folds in enumerate(drawn):
        by_key.setdefault(shape_of(folds) if is_varied else folds, []).append(turn)
    groups = sorted(by_key.values(), key=lambda turns: (-len(turns), turns[0]))
    for rank, turns in enumerate(groups):
        whole = drawn[turns[0]]
        for folds in {drawn[turn]: None for turn in turns}:
            whole = merged(whole, folds)
        first = found[turns[0]]
        site = first.last.site if first.last else None
        yield Picture(
            optimizer=place,
            folds=whole,
            norms=_norms([found[turn] for turn in turns], spelling),
            count=len(turns),
            first=first.step.index,
            site=None if site is None else sites[site],
            is_typical=rank == 0,
        )


def _norms(found: list[Window], spelling: _Spelling) -> tuple[tuple[str, Norms], ...]:
    """Return the norms before clipping, by the word that clips."""
    measured: dict[str, list[float]] = {}
    for window in found:
        for event in window.events:
            if event.kind == "clip-norm" and (norm := _number(event, "norm")) is not None:
                measured.setdefault(spelling.word(event, window), []).append(norm)
    return tuple((word, _summed_up(norms)) for word, norms in measured.items())


def _summed_up(norms: list[float]) -> Norms:
    finite = [norm for norm in norms if math.isfinite(norm)]
    return Norms(median=median(finite) if finite else None, nonfinite=len(norms) - len(finite))


def limit_text(limit: float) -> str:
    """Return a limit as it is written in a script: `1.0`, `0.1`, `inf`."""
    text = f"{limit:.6g}"
    return f"{text}.0" if text.lstrip("-").isdecimal() else text


def _number(event: EventRecord, name: str) -> float | None:
    """Return one of an event's numbers; None where it is not known."""
    return next((value for key, value in event.numbers if key == name), None)
