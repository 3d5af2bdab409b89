"""Records derivatives with a graph that no backward goes through."""

from collections.abc import Collection, Mapping, Set

from gradscope.capture.source.lines import Line
from gradscope.capture.step.derivatives import GraphedDerivatives
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.locations import Location
from gradscope.recording.events import UnusedDerivativeEvent, named

_STEPS = 2
"""Number of captured steps that do not use what a line computes."""


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
