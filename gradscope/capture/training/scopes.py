"""The sets of parameters that a script clips together."""

from collections.abc import Iterable

from gradscope.capture.training.gradient_state import Entry
from gradscope.recording.evidence.clipping import ClipScope

_MOST = 1_000_000
"""Maximum number of members of all sets. A script that clips a new set every time needs none."""


class Scopes:
    """Every set of parameters that was clipped, each once."""

    def __init__(self) -> None:
        self._locations: dict[tuple[int, ...], int] = {}
        """By `id` of the entries, which the sets keep alive."""
        self._sets: list[tuple[Entry, ...]] = []
        self._taken = self._members = 0

    def location(self, entries: Iterable[Entry]) -> int | None:
        """Return a set's index in the recording; None for an empty set or beyond the maximum."""
        held = tuple(entries)
        key = tuple(map(id, held))
        if key in self._locations or not key or self._members + len(key) > _MOST:
            return self._locations.get(key)
        self._members += len(key)
        self._locations[key] = len(self._sets)
        self._sets.append(held)
        return self._locations[key]

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
