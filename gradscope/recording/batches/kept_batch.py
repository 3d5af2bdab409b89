"""Batches that a run stored on request; their numbers are read on access."""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.encoding import read_shapes, write_shapes
from gradscope.recording.records import KeptBatch, Shape
from gradscope.recording.rows_in_file import LargeTable, RowsInFile
from gradscope.recording.table import Codec, table_of


def _elements(values: object) -> bytes:
    if not isinstance(values, bytes):
        raise TypeError("the elements of a tensor are a blob")
    return values


BATCH_TENSORS = LargeTable(
    name="stored_batch_tensor", columns=("values",), content="a batch", read=_elements
)


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


# Made with the first batch: most recordings store none, and a table takes a page at least.
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
            tensors=RowsInFile(table=BATCH_TENSORS, file=file, start=row.start, length=row.count),
        )
        for row in KEPT_BATCHES.records(base)
    )


def batches_in_memory(batches: Iterable[KeptBatch]) -> tuple[KeptBatch, ...]:
    """Return batches with all their elements read, so that their file may be removed."""
    return tuple(replace(one, tensors=tuple(one.tensors)) for one in batches)
