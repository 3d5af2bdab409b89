"""Writes which batches the steps with events used, and on request the batches themselves."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.records import KeptBatch
from gradscope.recording.rows_in_file import BATCH_TENSORS, KEPT_BATCHES
from gradscope.recording.tables import evidence_tables
from gradscope.recording.thinning.readings import Reading
from gradscope.recording.writer import FullError, RecordingWriter

_FIRST, _LAST, _MOST_INDICES = 200, 100, 1_024
"""Largest number of batches that are described, and of the indices of each."""

_MOST_BYTES = 64_000_000
"""Largest size of all stored batches."""

_SHARE = 0.25
"""Largest share of the recording's limit that they take."""


class Identities(Protocol):
    """Returns the batches of a step."""

    def __call__(self, step: int, /, *, is_read: bool) -> Iterable[BatchIdentity]:
        """Return them, and what their tensors hold if they are to be read."""


@dataclass(frozen=True, slots=True)
class _Kept:
    trouble: float
    size: int
    row: int
    tensors: range
    """Ids of its tensors."""


class EventBatches:
    """The batches of the steps with events.

    Args:
        writer: Of the recording.
        limit: Size in bytes that the recording may have; None for any.
    """

    def __init__(self, writer: RecordingWriter, limit: int | None) -> None:
        self._writer = writer
        self._most = _MOST_BYTES if limit is None else min(_MOST_BYTES, int(_SHARE * limit))
        self._described = 0
        self._kept: list[_Kept] = []
        self.identities: Identities = lambda _, *, is_read: ()
        """Returns the batches that a step used as far as they are known."""
        self.contents: Callable[[int, int], Iterable[KeptBatch]] | None = None
        """Returns the batches of a step up to a size in bytes; None if they are not stored."""

    def note(self, noted: Sequence[Reading]) -> None:
        """Describe the batches of some steps; inside a transaction."""
        for reading in noted:
            for one in self.identities(reading.step, is_read=reading.trouble > 0):
                count = self._described
                # The last ones take the places of older ones in turn, so that no row has to be
                # deleted.
                place = count if count < _FIRST else _FIRST + count % _LAST
                short = replace(one, indices=one.indices[:_MOST_INDICES])
                self._writer.put(evidence_tables()[BatchIdentity], place, short)
                self._described += 1

    def keep(self, noted: Sequence[Reading]) -> None:
        """Store the batches of the steps with trouble, if that is wanted and there is room.

        Those of the largest trouble stay.
        """
        if self.contents is None:
            return
        for reading in noted:
            for batch in self.contents(reading.step, self._most) if reading.trouble else ():
                self._keep(batch, reading.trouble)

    def _keep(self, batch: KeptBatch, trouble: float) -> None:
        size = batch.size
        dropped = self._less_important(size, trouble)
        if dropped is None:
            return
        row, start = (
            self._writer.next_index(name) for name in (KEPT_BATCHES.name, BATCH_TENSORS.name)
        )
        try:
            # Apart from the step's own, so that a batch for which there is no room does not undo
            # the step.
            with self._writer.transaction():
                for one in dropped:
                    self._writer.remove(KEPT_BATCHES.name, range(one.row, one.row + 1))
                    self._writer.remove(BATCH_TENSORS.name, one.tensors)
                self._writer.add_kept_batches([batch])
        except FullError as error:
            if not error.is_at_limit:
                raise
            return
        self._kept = [one for one in self._kept if one not in dropped]
        self._kept.append(_Kept(trouble, size, row, range(start, start + len(batch.tensors))))

    def _less_important(self, size: int, trouble: float) -> list[_Kept] | None:
        """Return what to drop for a batch of a size; None if what is there is worth more."""
        free = self._most - sum(one.size for one in self._kept) - size
        dropped: list[_Kept] = []
        # The sort is stable: of equal trouble, the oldest goes first.
        for one in sorted(self._kept, key=lambda one: one.trouble):
            if free >= 0 or one.trouble >= trouble:
                break
            dropped.append(one)
            free += one.size
        return dropped if free >= 0 else None
