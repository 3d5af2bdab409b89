"""How much of a long run is kept: the limit in bytes, and the steps that rules need."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from math import hypot, isfinite
from statistics import median
from typing import Self

from gradscope.frozen import dataclass
from gradscope.options.recording_options import bytes_of
from gradscope.recording.records import CapturedStep
from gradscope.recording.step_norms import NORMS, numbers_of
from gradscope.recording.thinning.chunks import Whole
from gradscope.recording.thinning.readings import Reading
from gradscope.recording.writer import RecordingWriter

FOLDED = 100
"""Number of steps that are folded together first."""
CLOSING = 32_768
"""Bytes that are left for the end of a run."""


_FIRST, _SHARE_OF_LAST = 6, 0.25
"""Number of first captured steps that are never dropped, and share of the last ones."""


LED = 4e5
"""Importance of such a step: less than that of the first broken one."""
_FOLLOWS = 12
"""Number of steps within which a loss follows an update."""
_WINDOW, _LEAST = 12, 5
"""Largest and least number of measured updates with which one is compared."""
_LARGE = 2.0
"""Multiple of the usual update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is kept of a run."""

    limit: int
    """Size of the file in bytes."""
    recent: int = 1_000
    """Number of last steps that are kept whole."""
    chunks: int = 60
    """Number of summaries of one resolution."""
    block: int = 10
    """Number of steps in each that are kept whole."""
    around: int = 2_000
    """Number of steps around events that are kept whole."""
    captured: int = 64
    """Number of captured steps."""
    norms: int = 1
    """Whether the whole steps of summaries have the norms of all parameters."""
    measured: int = 10
    """Number of steps in a summary that keep the norms of parameters."""
    first: int = FOLDED
    """Number of first steps that are kept whole."""

    @classmethod
    def of(cls, size: str) -> Self | None:
        """Return the room of a size such as `256MB`; None for everything."""
        limit = bytes_of(size)
        return None if limit is None else cls(limit=limit)

    def smaller(self) -> Self | None:
        """Return the next smaller room; None if this is the smallest."""
        for name, least in _SMALLER:
            value = getattr(self, name)
            if value > least:
                return replace(self, **{name: max(value // 2, least)})
        return None


_SMALLER = (
    ("chunks", 10),
    ("around", 300),
    ("captured", 8),
    ("recent", 100),
    ("around", 0),
    ("captured", 2),
    ("norms", 0),
    ("first", 10),
    ("recent", 20),
    ("measured", 1),
)
"""What is kept less of, in this order, and down to how much."""


def room_for_steps(limit: int) -> int:
    """Return the size in bytes up to which steps are added; the rest is for summaries."""
    return limit - max(limit // 10, 2 * CLOSING)


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


def follows_large_update(writer: RecordingWriter, last: Iterable[object], reading: Reading) -> bool:
    """Return whether an update of the steps before a reading exceeds the usual one.

    Args:
        writer: Writer of the recording.
        last: The last steps, in order; those that are not `Whole` measured nothing.
        reading: What was read of the step.
    """
    near = (one for one in last if isinstance(one, Whole) and one.has_norms)
    # Updates are measured in every tenth step only.
    span = range(reading.step - 10 * (_WINDOW + 2) - _FOLLOWS, reading.step)
    known = list(_updates(writer, (one for one in near if one.step in span)))
    for index in range(_LEAST, len(known)):
        step, norm = known[index]
        before = [one for _, one in known[max(index - _WINDOW, 0) : index]]
        is_large = norm >= _LARGE * median(before) and norm > max(before)
        if is_large and reading.step - step <= _FOLLOWS:
            return True
    return False


def _updates(writer: RecordingWriter, steps: Iterable[Whole]) -> Iterator[tuple[int, float]]:
    """Yield the steps with measured updates, and the norm of these over the learning rate."""
    for one in steps:
        rates = [
            number
            for event in one.events
            if event.kind == "step"
            for name, number in event.numbers
            if name == "lr"
        ]
        cells = writer.cells(NORMS, ("set", "update_norm"), one.rows[NORMS])
        norms = [
            norm
            for index, cell in cells
            if cell is not None
            for norm in numbers_of(cell, len(writer.norm_sets.parameters[index]))
            if norm >= 0
        ]
        # A schedule changes the size of all updates: only the gradient's part of it is compared.
        size = hypot(*norms) / ((rates[-1] if rates else 0.0) or 1.0)
        if norms and isfinite(size):
            yield one.step, size
