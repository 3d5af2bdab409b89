"""Tables of stored gradients; their numbers are read on access."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from gradscope.errors import GradscopeError
from gradscope.recording.encoding import read_shape, write_shape
from gradscope.recording.records import Shape
from gradscope.recording.stored_gradient import StoredGradient, StoredPart
from gradscope.recording.table import Cells, Codec, Row, table_of

PARTS = "kept_part"
"""Name of the table of their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredParts(Sequence[StoredPart]):
    """The parts of a stored gradient in a file, which is open only while one is read."""

    file: Path
    start: int
    """Index of its first part among the parts of all gradients."""
    length: int

    def __len__(self) -> int:
        """Return the number of parts."""
        return self.length

    @overload
    def __getitem__(self, position: int) -> StoredPart: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[StoredPart, ...]: ...
    def __getitem__(self, position: int | slice) -> StoredPart | tuple[StoredPart, ...]:
        """Read one part, or a slice.

        Raises:
            GradscopeError: The file is gone, or damaged.
        """
        found = range(self.start, self.start + self.length)[position]
        return self._part(found) if isinstance(found, int) else tuple(map(self._part, found))

    def _part(self, position: int) -> StoredPart:
        query = f'SELECT "values", "rows" FROM {PARTS} WHERE id = ?'
        try:
            uri = f"{self.file.as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as base:
                row = base.execute(query, (position,)).fetchone()
        except sqlite3.Error as error:
            raise GradscopeError(f"cannot read a gradient of `{self.file}`: {error}") from error
        if row is None:
            raise GradscopeError(f"cannot read a gradient of `{self.file}`: it is damaged")
        return StoredPart(*row)


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

PART_DEFINITION = f'CREATE TABLE {PARTS} (id INTEGER PRIMARY KEY, "values" BLOB, "rows" BLOB)'
PART_INSERTION = f"INSERT INTO {PARTS} VALUES (?, ?, ?)"


def read_stored_gradients(base: sqlite3.Connection, file: Path) -> tuple[StoredGradient, ...]:
    """Return the gradients in a file, without their numbers."""
    return tuple(_stored(row, file) for row in STORED_GRADIENTS.records(base))


def in_memory(gradients: Iterable[StoredGradient]) -> tuple[StoredGradient, ...]:
    """Return gradients with all their numbers read, so that their file may be removed."""
    return tuple(replace(one, parts=tuple(one.parts)) for one in gradients)


def _stored(row: StoredRow, file: Path) -> StoredGradient:
    return replace(row.gradient, parts=StoredParts(file=file, start=row.start, length=row.count))
