"""The captured steps of a long run that are kept: first and last ones, and some between."""

from collections.abc import Set

from gradscope.frozen import dataclass
from gradscope.recording.records import CapturedStep
from gradscope.recording.writer import RecordingWriter

_FIRST, _SHARE_OF_LAST = 6, 0.25
"""Number of first captured steps that are never dropped, and share of the last ones."""


@dataclass(frozen=True, slots=True)
class _Captured:
    index: int
    step: int
    same_as: int | None


class CapturesKept:
    """The captured steps in a recording."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._kept: list[_Captured] = []
        self._count = self.dropped = 0
        """Number of captured steps, and of those that were dropped."""

    def add(self, captured: CapturedStep) -> None:
        """Take note of a captured step that was written."""
        self._kept.append(_Captured(self._count, captured.step, captured.same_as))
        self._count += 1

    def skip(self, count: int) -> None:
        """Take note of captured steps that were not written."""
        self._count += count
        self.dropped += count

    @property
    def steps(self) -> frozenset[int]:
        """The steps with captures that are kept."""
        return frozenset(one.step for one in self._kept)

    def thin(self, most: int, important: Set[int]) -> frozenset[int]:
        """Delete captured steps until at most so many are left, those with the nearest neighbours.

        Args:
            most: Number of captured steps to keep.
            important: Steps whose captures are kept as long as others can be dropped.

        Returns:
            The steps that have no capture any more.
        """
        before = self.steps if len(self._kept) > most else frozenset()
        self._thin(most, important)
        return before - self.steps

    def _thin(self, most: int, important: Set[int]) -> None:
        while len(self._kept) > most:
            # What others repeat has the graph and the lines of these.
            known = {one.same_as for one in self._kept}
            last = len(self._kept) - max(1, int(_SHARE_OF_LAST * most))
            free = [
                index
                for index in range(min(_FIRST, most // 2), last)
                if self._kept[index].index not in known
            ]
            if not free:
                return
            # At least one stays at either end, so that each of these has neighbours.
            index = min(
                free,
                key=lambda index: (
                    self._kept[index].step in important,
                    self._kept[index + 1].step - self._kept[index - 1].step,
                ),
            )
            self._writer.remove_captured_step(self._kept.pop(index).index)
            self.dropped += 1
