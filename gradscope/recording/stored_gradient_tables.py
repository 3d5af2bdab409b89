"""Tables of stored gradients; their numbers are read on access."""

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.encoding import read_shape, write_shape
from gradscope.recording.records import Shape
from gradscope.recording.rows_in_file import LargeTable, RowsInFile
from gradscope.recording.stored_gradient import StoredGradient, StoredPart
from gradscope.recording.table import Cells, Codec, Row, table_of

PARTS = LargeTable(
    name="kept_part", columns=("values", "rows"), content="a gradient", read=StoredPart
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A stored gradient, and the location of its parts."""

    gradient: StoredGradient
    start: int
    count: int


def _write_gradient(one: StoredGradient) -> Cells:
    return (one.step, one.parameter, one.form, write_shape(Shape(dims=one.shape, dtype=one.dtype)))


def _read_gradient(cells: Row) -> StoredGradient:
    step, parameter, form, shape = cells
    was = read_shape(shape)
    return StoredGradient(
        step=step, parameter=parameter, form=form, shape=was.dims, dtype=was.dtype, parts=()
    )


_GRADIENT = Codec(
    write=_write_gradient,
    read=_read_gradient,
    columns=("step INTEGER", "parameter INTEGER", "form TEXT", "shape TEXT"),
)

STORED_GRADIENTS = table_of(
    StoredRow,
    "kept_gradient",
    codecs={"gradient": _GRADIENT},
    columns={"start": "first_part", "count": "parts"},
    is_late=True,
)


def read_stored_gradients(base: sqlite3.Connection, file: Path) -> tuple[StoredGradient, ...]:
    """Return the gradients in a file, without their numbers."""
    return tuple(_stored(row, file) for row in STORED_GRADIENTS.records(base))


def in_memory(gradients: Iterable[StoredGradient]) -> tuple[StoredGradient, ...]:
    """Return gradients with all their numbers read, so that their file may be removed."""
    return tuple(replace(one, parts=tuple(one.parts)) for one in gradients)


def _stored(row: StoredRow, file: Path) -> StoredGradient:
    parts = RowsInFile(table=PARTS, file=file, start=row.start, length=row.count)
    return replace(row.gradient, parts=parts)
