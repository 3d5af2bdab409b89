"""The sets of parameters that a script clips together."""

from collections.abc import Iterable

from gradscope.capture.training.ledger import Entry
from gradscope.recording.evidence.clip_scope import ClipScope

_MOST = 10_000
"""Sets; a script that clips another one every time has no use for their list."""


class Scopes:
    """Every set of parameters that was clipped, each once."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], int] = {}
        """By `id` of the entries, which the sets keep alive."""
        self._sets: list[tuple[Entry, ...]] = []
        self._taken = 0

    def place(self, entries: Iterable[Entry]) -> int | None:
        """Return a set's place among the recording's; None for an empty one."""
        held = tuple(entries)
        key = tuple(map(id, held))
        if key in self._places or not key or len(self._sets) == _MOST:
            return self._places.get(key)
        self._places[key] = len(self._sets)
        self._sets.append(held)
        return self._places[key]

    def take(self) -> tuple[ClipScope, ...]:
        """Return the sets that are new since the last call; their parameters are recorded."""
        new, self._taken = self._sets[self._taken :], len(self._sets)
        return tuple(
            ClipScope(
                parameters=tuple(
                    sorted(entry.index for entry in entries if entry.index is not None)
                )
            )
            for entries in new
        )
