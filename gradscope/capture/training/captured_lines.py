"""Records lines of captured steps whose result is unused, or always the same number."""

from collections.abc import Collection, Mapping, Set

from gradscope.capture.source.lines import Line
from gradscope.capture.step.derivatives import GraphedDerivatives
from gradscope.capture.step.unvarying import UnitRatio, UnvaryingObserver, ZeroQuotient
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.locations import Location
from gradscope.recording.events import (
    UnitRatioEvent,
    UnusedDerivativeEvent,
    ZeroQuotientEvent,
    named,
)

_STEPS = 2
"""Number of captured steps that do not use what a line computes."""


_RESULT_STEPS = 3
"""Number of captured steps with other dividends each."""
_REUSES = 2
"""Number of captured steps that train on data of an earlier one."""
_DISTINCT = 8
"""Number of different factors by which data are known again. Chosen: rewards of 0 and 1 have few.
"""
_SHARE = 0.5
"""Share of the factors that an earlier step had."""


class UnusedDerivatives:
    """Records each such line once, unless a captured step has used it before.

    A step's derivatives may be used in the next step: they are judged with it.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._used: set[Line] = set()
        self._waiting: Mapping[Line, Collection[int]] = {}
        """Derivatives of the last step that it has not used."""
        self._steps: dict[Line, int] = {}

    def stepped(self, seen: GraphedDerivatives, passed: Set[int], *, is_next: bool) -> None:
        """Record the derivatives of a captured step.

        Args:
            seen: The derivatives.
            passed: Sequence numbers of the nodes of all its backwards; empty if some are unknown.
            is_next: Whether the step before was captured, too.
        """
        self._used |= seen.used
        if not passed:
            self._used |= seen.nodes.keys() | self._waiting.keys()
        for nodes in (self._waiting, seen.nodes):
            self._used |= {line for line, own in nodes.items() if not passed.isdisjoint(own)}
        for line in self._waiting if is_next else ():
            if line not in self._used:
                self._count(line)
        self._waiting = {line: own for line, own in seen.nodes.items() if line not in self._used}

    def _count(self, line: Line) -> None:
        self._steps[line] = self._steps.get(line, 0) + 1
        if self._steps[line] == _STEPS:
            numbers = named(UnusedDerivativeEvent, steps=float(_STEPS))
            self._event_log.note("unused-derivative", Location(line, line, None, 0), numbers)


class UnvaryingResults:
    """Records each such line once, unless another step has another result."""

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._varying: set[Line] = set()
        self._noted: set[Line] = set()
        self._quotients: dict[Line, list[ZeroQuotient]] = {}
        self._factors: dict[Line, set[float]] = {}
        """By line of a ratio: the factors of all steps so far."""
        self._reuses: dict[Line, int] = {}

    def stepped(self, seen: UnvaryingObserver) -> None:
        """Record the results of a captured step."""
        self._varying |= seen.varying
        for line, quotient in seen.quotients.items():
            if line not in self._varying:
                self._add_quotient(line, quotient)
        for line, ratio in seen.ratios.items():
            if line not in self._varying:
                self._add_ratio(line, ratio)

    def _add_quotient(self, line: Line, found: ZeroQuotient) -> None:
        known = self._quotients.setdefault(line, [])
        # Equal dividends, as of positions in a sequence of fixed length, are no further evidence.
        if len(known) >= _RESULT_STEPS or any(one.digest == found.digest for one in known):
            return
        known.append(found)
        largest = max(one.largest for one in known)
        if len(known) == _RESULT_STEPS:
            numbers = named(
                ZeroQuotientEvent,
                steps=float(len(known)),
                elements=float(sum(one.elements for one in known)),
                largest=largest,
                divisor=found.divisor,
            )
            self._note("zero-quotient", line, numbers)

    def _add_ratio(self, line: Line, found: UnitRatio) -> None:
        factors = self._factors.setdefault(line, set())
        if len(found.factors) >= _DISTINCT:
            known = len(found.factors & factors)
            if known >= _SHARE * len(found.factors):
                self._reuses[line] = self._reuses.get(line, 0) + 1
        factors |= found.factors
        if self._reuses.get(line) == _REUSES:
            numbers = named(UnitRatioEvent, elements=float(found.elements), reuses=float(_REUSES))
            self._note("unit-ratio", line, numbers)

    def _note(self, kind: str, line: Line, numbers: Mapping[str, float]) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self._event_log.note(kind, Location(line, line, None, 0), dict(numbers))
