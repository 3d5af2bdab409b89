"""Finds what carries a tensor with its history from one step to the next."""

from collections import Counter
from collections.abc import Iterator
from types import FrameType

from torch import nn

from gradscope.capture.source.lines import Line
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.history.assignments import Store
from gradscope.capture.training.history.kept import KeptHistory
from gradscope.capture.training.history.references import HistoryReference, references, store_of
from gradscope.capture.training.locations import NOWHERE, Location, Locations
from gradscope.recording.events import CarriedEvent, named

_MOST_SEARCHES = 6
"""Maximum number of searches without a result at a line whose graph reaches back."""

_ADVANCE_SEARCHES = 5
"""Maximum number of advance searches at a line whose graph does not reach back, but whose next one
may. Each takes some milliseconds."""

_Key = tuple[int, str]


class History:
    """Finds references to the parts of a graph that an earlier step made.

    A tensor carried over by a step is still where it was stored when the next backward starts; or
    it was there at the previous backward, and another tensor has replaced it.

    After a result at a line, no further search is made there.
    """

    def __init__(self, event_log: EventLog, locations: Locations) -> None:
        self._event_log, self._locations = event_log, locations
        self._before: dict[Line | None, dict[_Key, frozenset[int]]] = {}
        """By line: references found when its previous backward started."""
        self._looks: Counter[Line | None] = Counter()
        self._advance_searches: Counter[Line | None] = Counter()
        self._found: set[Line | None] = set()
        self.is_waiting = False
        """Whether this graph requires a search at the next one."""
        self.kept = KeptHistory(event_log)

    def search(
        self,
        line: Line | None,
        frame: FrameType,
        crossed: frozenset[int],
        modules: list[nn.Module],
        step: int,
    ) -> None:
        """Search for references to operations of earlier steps, and record them.

        Args:
            line: Line of the backward.
            frame: Frame of its call.
            crossed: Sequence numbers of the operations of earlier steps that this step uses.
            modules: Modules of the script's models.
            step: Number of steps so far.
        """
        self.is_waiting = False
        seeks_carriers, seeks_kept = self._seeks_carriers(line, crossed), self.kept.is_due(step)
        if not (seeks_carriers or seeks_kept):
            return
        frames = self._locations.users(frame)
        try:
            now = list(references(frames, modules))
        except Exception:  # noqa: BLE001 - objects of a script's may do anything
            return
        if seeks_kept:
            self.kept.search(step, now, crossed, frames)
        if seeks_carriers:
            self._search_carriers(line, now, crossed, frames)

    def _seeks_carriers(self, line: Line | None, crossed: frozenset[int]) -> bool:
        if line in self._found or self._looks[line] == _MOST_SEARCHES:
            return False
        if not crossed:
            self._advance_searches[line] += 1
        return bool(crossed) or self._advance_searches[line] <= _ADVANCE_SEARCHES

    def _search_carriers(
        self,
        line: Line | None,
        now: list[HistoryReference],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> None:
        if crossed:
            self._looks[line] += 1
            found = list(self._carriers(line, now, crossed, frames))
            if found:
                self._found.add(line)
                self._note(*max(found, key=lambda pair: pair[1].rank if pair[1] else ()))
            self.is_waiting = not found
        self._before[line] = {one.key: one.numbers for one in now}

    def _carriers(
        self,
        line: Line | None,
        now: list[HistoryReference],
        crossed: frozenset[int],
        frames: list[FrameType],
    ) -> Iterator[tuple[HistoryReference, Store | None]]:
        held = self._before.get(line, {})
        for one in now:
            before = held.get(one.key, frozenset())
            if not crossed.isdisjoint(one.numbers | before):
                yield one, store_of(one, frames)

    def _note(self, reference: HistoryReference, store: Store | None) -> None:
        if store is None:
            self._event_log.note("carried", NOWHERE, {}, subject=reference.name)
            return
        self._event_log.note(
            "carried",
            Location(store.line, store.line, None, 0),
            named(
                CarriedEvent,
                repeated=float(store.is_repeated),
                sum=float(store.is_sum),
                collected=float(store.collects),
            ),
            subject=store.target,
        )
