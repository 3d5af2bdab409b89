"""Batches that a run stored on request; their numbers are read on access."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from gradscope.errors import GradscopeError
from gradscope.recording.encoding import read_shapes, write_shapes
from gradscope.recording.records import KeptBatch, Shape
from gradscope.recording.table import Codec, table_of

BATCH_TENSORS = "stored_batch_tensor"
"""Name of the table of their numbers."""

BATCH_TENSOR_DEFINITION = f'CREATE TABLE {BATCH_TENSORS} (id INTEGER PRIMARY KEY, "values" BLOB)'
BATCH_TENSOR_INSERTION = f"INSERT INTO {BATCH_TENSORS} VALUES (?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorsInFile(Sequence[bytes]):
    """The elements of a batch's tensors in a file, which is open only while one is read."""

    file: Path
    start: int
    """Index of its first tensor among those of all batches."""
    length: int

    def __len__(self) -> int:
        """Return the number of tensors."""
        return self.length

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, position: int | slice) -> bytes | tuple[bytes, ...]:
        """Read the elements of one tensor, or of a slice of them.

        Raises:
            GradscopeError: The file is gone, or damaged.
        """
        found = range(self.start, self.start + self.length)[position]
        return self._values(found) if isinstance(found, int) else tuple(map(self._values, found))

    def _values(self, position: int) -> bytes:
        query = f'SELECT "values" FROM {BATCH_TENSORS} WHERE id = ?'
        try:
            uri = f"{self.file.as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as base:
                row = base.execute(query, (position,)).fetchone()
        except sqlite3.Error as error:
            raise GradscopeError(f"cannot read a batch of `{self.file}`: {error}") from error
        if row is None or not isinstance(row[0], bytes):
            raise GradscopeError(f"cannot read a batch of `{self.file}`: it is damaged")
        return row[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A stored batch, and the location of its tensors."""

    step: int
    loader: str
    structure: str
    shapes: tuple[Shape, ...]
    start: int
    count: int

    @classmethod
    def of(cls, batch: KeptBatch, start: int) -> "BatchRow":
        """Return the row of a batch whose tensors begin at an index."""
        return cls(
            step=batch.step,
            loader=batch.loader,
            structure=batch.structure,
            shapes=batch.shapes,
            start=start,
            count=len(batch.tensors),
        )


KEPT_BATCHES = table_of(
    BatchRow,
    "stored_batch",
    codecs={"shapes": Codec(write=write_shapes, read=read_shapes)},
    columns={"start": "first_tensor", "count": "tensors"},
    is_late=True,
)


def read_kept_batches(base: sqlite3.Connection, file: Path) -> tuple[KeptBatch, ...]:
    """Return the batches in a file, without the elements of their tensors."""
    return tuple(
        KeptBatch(
            step=row.step,
            loader=row.loader,
            structure=row.structure,
            shapes=row.shapes,
            tensors=TensorsInFile(file=file, start=row.start, length=row.count),
        )
        for row in KEPT_BATCHES.records(base)
    )


def batches_in_memory(batches: Iterable[KeptBatch]) -> tuple[KeptBatch, ...]:
    """Return batches with all their elements read, so that their file may be removed."""
    return tuple(replace(one, tensors=tuple(one.tensors)) for one in batches)
