"""Records averages of the weights that go wrong: they move away, are not stored, or are trained."""

import math
from collections.abc import Iterable
from itertools import pairwise

from gradscope.capture.source.lines import Line
from gradscope.capture.step.self_averages import Average
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.locations import Location
from gradscope.capture.training.steps.update_lines import is_lost_average
from gradscope.recording.events import AverageEvent, named

_SAME = 1e-4
"""Largest relative difference of two factors that count as equal."""
_LARGEST = 1 + 1e-6
"""Factor of an average above which it moves away from what it averages."""
_SMALLEST = 0.1
"""Factor of an average below which it is worth a record."""
_SLOW = 0.9
"""Factor from which on an average follows slowly: networks that are averaged as equals have less.
"""


_HALF = 0.5
_FALLING = 3
"""Number of steps whose factors fall from one to the next where those of a warm-up are swapped."""


class WrongAverages:
    """Records such an average once per line, when a second step confirms its factors.

    The factors of an average that warms up differ from step to step: it keeps more of itself each
    time. If it keeps less each time, and less than half of itself, its factors are swapped.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._seen: dict[Line, float] = {}
        self._history: dict[Line, list[float]] = {}
        self._noted: set[Line] = set()
        self._seen_trained: set[Line] = set()

    def see_computed(self, averages: Iterable[Average]) -> None:
        """Record the averages that a loop over the weights computes and stores nowhere."""
        for one in averages:
            if one.line not in self._noted and is_lost_average(one.line):
                self._note(one, is_lost=True)

    def see_trained(self, averages: Iterable[Average]) -> None:
        """Record the slow averages that the optimizer steps with a gradient, in a second step."""
        for one in averages:
            if one.line not in self._noted and _SLOW <= one.own < 1:
                if one.line in self._seen_trained:
                    self._note(one, is_trained=True)
                self._seen_trained.add(one.line)

    def see(self, averages: Iterable[Average]) -> None:
        """Record the averages of a captured step."""
        for one in averages:
            if one.line in self._noted:
                continue
            if self._falls(one):
                self._note(one, falls=True)
                continue
            if _SMALLEST < one.own < _LARGEST:
                continue
            before = self._seen.get(one.line)
            self._seen[one.line] = one.own
            # A factor computed from other numbers may come near such a value by chance, once.
            if before is None or not math.isclose(before, one.own, rel_tol=_SAME):
                continue
            self._note(one)

    def _falls(self, one: Average) -> bool:
        """Return whether an average has kept less of itself in each of the last steps."""
        factors = self._history.setdefault(one.line, [])
        factors.append(one.own)
        del factors[:-_FALLING]
        falls = all(later < before * (1 - _SAME) for before, later in pairwise(factors))
        return len(factors) == _FALLING and falls and 0 < one.own < _HALF and factors[0] < 1

    def _note(
        self, one: Average, *, is_lost: bool = False, is_trained: bool = False, falls: bool = False
    ) -> None:
        self._noted.add(one.line)
        numbers = named(
            AverageEvent,
            own=one.own,
            tensors=float(one.tensors),
            lost=float(is_lost),
            trained=float(is_trained),
            falls=float(falls),
        )
        self._event_log.note("average", Location(one.line, one.line, None, 0), numbers)
