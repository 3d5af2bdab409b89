"""The steps of a run as sequences of calls, repetitions folded."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from gradscope.analysis.loop_windows import LoopWindow
from gradscope.analysis.run_optimizers import Optimizers
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardEvent,
    ClipEvent,
    ClipNormEvent,
    ClipValueEvent,
    Event,
    Observation,
    ScalerStepEvent,
    StepEvent,
    ZeroEvent,
    only,
)
from gradscope.recording.records import Site

_LONGEST = 8
"""Maximum number of entries in a repeated group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A name or a group of them, and its number of consecutive repetitions."""

    word: str
    """Name of the event; empty for a group."""
    group: tuple["Fold", ...]
    least: int
    most: int
    """Largest number of repetitions; above `least` if it stands for several sequences."""


Folds = tuple[Fold, ...]


def folded(words: Sequence[str]) -> Folds:
    """Return the names with repetitions merged."""
    folds: list[Fold] = []
    position = 0
    while position < len(words):
        length, times = _repetition(words, position)
        group = folded(words[position : position + length]) if length > 1 else ()
        word = "" if group else words[position]
        folds.append(Fold(word=word, group=group, least=times, most=times))
        position += length * times
    return tuple(folds)


def _repetition(words: Sequence[str], position: int) -> tuple[int, int]:
    """Return length and times of the group that covers most from here on, the shortest of equal."""
    best = (1, 1)
    for length in range(1, min(_LONGEST, (len(words) - position) // 2) + 1):
        times = _times(words, position, length)
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def _times(words: Sequence[str], position: int, length: int) -> int:
    group = words[position : position + length]
    times = 1
    # A slice beyond the end is shorter, and equals no group.
    while words[position + times * length : position + (times + 1) * length] == group:
        times += 1
    return times


def shape_of(folds: Folds) -> object:
    """Return the common form of sequences that differ only in the number of repetitions."""
    return tuple(fold.word or shape_of(fold.group) for fold in folds)


def merged(one: Folds, other: Folds) -> Folds:
    """Return two sequences of one shape as one with minimum and maximum repetitions."""
    return tuple(
        Fold(
            word=left.word,
            group=merged(left.group, right.group),
            least=min(left.least, right.least),
            most=max(left.most, right.most),
        )
        for left, right in zip(one, other, strict=True)
    )


_WORDS = {
    "grad": "autograd.grad",
    "scaler-update": "update scale",
}
"""Names of events in a pattern that differ from their kind."""
_LIMITS_TOLD = 4
"""Limits with more different values than this are computed anew in each step, and are no part of a
pattern.
"""
_USUAL = 0.5
"""Share of steps below which patterns that differ only in repetitions are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Measurements of a function that clips."""

    median: float | None
    """Median of the finite norms; None without any."""
    nonfinite: int
    calls: int
    """Number of calls with a finite norm."""
    cut: int
    """Number of calls with a norm above the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Windows that are made of the same events."""

    optimizer: int | None
    """Index of the optimizer in the report; None for windows without a step."""
    folds: Folds
    norms: tuple[tuple[str, Norms], ...]
    """By the event that clips: the norms before clipping."""
    count: int
    """Number of windows with this pattern."""
    first: int
    """First such step."""
    site: Site | None
    """Line of that step; for windows without a step, the line of the last event."""
    is_typical: bool
    """Whether most of the optimizer's windows have this pattern."""
    windows: tuple[int, ...]
    """Indices among the windows of the run."""


def patterns(
    found: Sequence[LoopWindow], optimizers: Optimizers, sites: Sequence[Site]
) -> tuple[Pattern, ...]:
    """Return the patterns of each optimizer's windows, the most frequent first."""
    spelling = Spelling(found, optimizers)
    by_optimizer: dict[int | None, list[_Drawn]] = {}
    for position, window in enumerate(found):
        if not window.events and window.step.optimizer is None:
            continue  # nothing happened in the whole run
        drawn = spelling.drawn(position, window)
        by_optimizer.setdefault(optimizers.position(window), []).append(drawn)
    order = sorted(by_optimizer, key=lambda position: (position is None, position or 0))
    return tuple(
        pattern
        for position in order
        for pattern in _of_one(position, by_optimizer[position], sites)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A window as a sequence of names."""

    position: int
    """Index among the windows of the run."""
    window: LoopWindow
    folds: Folds
    norms: tuple[tuple[str, float, bool], ...]
    """Per clipping function: its event, the norm it measured, and whether the norm was above the
    limit.
    """


class Spelling:
    """How events are called, given what else there is in the run."""

    def __init__(self, found: Iterable[LoopWindow], optimizers: Optimizers) -> None:
        self._optimizers = optimizers
        self._folds: dict[tuple[str, ...], Folds] = {}
        limits: dict[str, set[float | None]] = {}
        for window in found:
            for event in only(ClipEvent, window.events):
                limits.setdefault(event.kind, set()).add(event.limit)
        self._told = {kind for kind, values in limits.items() if len(values) <= _LIMITS_TOLD}

    def drawn(self, position: int, window: LoopWindow) -> _Drawn:
        """Return the window's events as names, with repetitions merged."""
        parts: list[str] = []
        norms: list[tuple[str, float, bool]] = []
        for event in window.events:
            if isinstance(event, BackwardEvent) and event.has_forward:
                parts.append("forward")
            if word := self.word(event, window):
                parts.append(word)
            if isinstance(event, ClipNormEvent) and event.norm is not None:
                limit = math.inf if event.max_norm is None else event.max_norm
                norms.append((word, event.norm, event.norm > limit))
        key = tuple(parts)
        # Thousands of steps have the same calls: a pattern is folded once, and compared by
        # identity.
        folds = self._folds.get(key)
        if folds is None:
            folds = self._folds[key] = folded(key)
        return _Drawn(position=position, window=window, folds=folds, norms=tuple(norms))

    def word(self, event: Event, window: LoopWindow) -> str:
        """Return an event's name; empty if its neighbours say the same, or the loop did nothing."""
        match event:
            case Observation():
                return ""
            case ClipEvent():
                return self._clip(event)
            case ScalerStepEvent():
                return f"skipped step{self._owner(event, window)}" if event.skipped else ""
            case BackwardEvent() if event.create:
                return "backward with create_graph"
            case ZeroEvent() if event.subject == "outside":
                return "zero by hand"
            case StepEvent() if event.manual and event.optimizer is None:
                return "step by hand"
        return _WORDS.get(event.kind, event.kind) + self._owner(event, window)

    def _clip(self, event: ClipEvent) -> str:
        word = "clip values" if isinstance(event, ClipValueEvent) else "clip"
        if event.limit is None or event.kind not in self._told:
            return word
        return f"{word} {limit_text(event.limit)}"

    def _owner(self, event: Event, window: LoopWindow) -> str:
        """Return the optimizer of an event that has to do with another than the window's."""
        if event.optimizer is None or event.optimizer == window.optimizer:
            return ""
        name = self._optimizers.name(event.optimizer)
        return f" {name}" if name and len(self._optimizers.rows) > 1 else ""


def _of_one(position: int | None, found: list[_Drawn], sites: Sequence[Site]) -> Iterator[Pattern]:
    """Yield the patterns of one optimizer's windows."""
    found = _with_whole_end(found)
    counts: Counter[int] = Counter()
    for drawn in found:
        counts[_identity(drawn)] += drawn.window.count
    is_varied = len(counts) > 2 and max(counts.values()) < _USUAL * _steps(found)
    by_key: dict[object, list[_Drawn]] = {}
    for drawn in found:
        key = shape_of(drawn.folds) if is_varied else _identity(drawn)
        by_key.setdefault(key, []).append(drawn)
    # The sort is stable: equally frequent ones stay in order.
    groups = sorted(by_key.values(), key=_steps, reverse=True)
    for rank, alike in enumerate(groups):
        yield _pattern(position, alike, sites, is_typical=rank == 0)


def _steps(found: list[_Drawn]) -> int:
    return sum(drawn.window.count for drawn in found)


def _with_whole_end(found: list[_Drawn]) -> list[_Drawn]:
    """Return the windows; a last one that only ends sooner becomes like the one before it.

    A recording may end right after a step, before what the loop does behind it.
    """
    if len(found) < 2:
        return found
    before, last = found[-2:]
    is_start = before.folds[: len(last.folds)] == last.folds
    return [*found[:-1], replace(last, folds=before.folds)] if is_start else found


def _identity(drawn: _Drawn) -> int:
    """Return a key for windows with the same names: their folds are one object."""
    return id(drawn.folds)


def _pattern(
    position: int | None, alike: list[_Drawn], sites: Sequence[Site], *, is_typical: bool
) -> Pattern:
    whole = alike[0].folds
    for folds in {_identity(drawn): drawn.folds for drawn in alike}.values():
        whole = merged(whole, folds)
    measured: dict[str, list[tuple[float, bool, int]]] = {}
    for drawn in alike:
        for word, norm, is_above in drawn.norms:
            measured.setdefault(word, []).append((norm, is_above, drawn.window.count))
    first = alike[0].window
    site = first.last.site if first.last else None
    return Pattern(
        optimizer=position,
        folds=whole,
        norms=tuple((word, _summed_up(norms)) for word, norms in measured.items()),
        count=sum(drawn.window.count for drawn in alike),
        first=first.step.index,
        site=None if site is None else sites[site],
        is_typical=is_typical,
        windows=tuple(drawn.position for drawn in alike),
    )


def _summed_up(norms: list[tuple[float, bool, int]]) -> Norms:
    finite = [norm for norm, *_ in norms if math.isfinite(norm)]
    calls = sum(count for norm, _, count in norms if math.isfinite(norm))
    return Norms(
        median=median(finite) if finite else None,
        nonfinite=sum(count for *_, count in norms) - calls,
        calls=calls,
        cut=sum(count for norm, is_above, count in norms if is_above and math.isfinite(norm)),
    )


def limit_text(limit: float) -> str:
    """Return a limit as written in a script: `1.0`, `0.1`, `inf`."""
    text = f"{limit:.6g}"
    return f"{text}.0" if text.lstrip("-").isdecimal() else text
