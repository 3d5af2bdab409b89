"""Tables whose rows are large: they are written at once, and read one at a time on access."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar, overload

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.encoding import read_shape, read_shapes, write_shape, write_shapes
from gradscope.recording.records import KeptBatch, Shape
from gradscope.recording.stored_gradient import StoredGradient, StoredPart
from gradscope.recording.table import Cells, Codec, Row, table_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeTable(Generic[T]):
    """A table of numbered rows of blobs."""

    name: str
    columns: tuple[str, ...]
    content: str
    """What its rows are part of, for messages, such as `a gradient`."""
    read: Callable[..., T]
    """Makes a row's value from its cells; raises TypeError or ValueError for damaged ones."""

    @property
    def definition(self) -> str:
        """The statement that makes the table."""
        columns = ", ".join(f'"{one}" BLOB' for one in self.columns)
        return f"CREATE TABLE {self.name} (id INTEGER PRIMARY KEY, {columns})"

    @property
    def insertion(self) -> str:
        """The statement that adds a row: its index, and its cells."""
        return f"INSERT INTO {self.name} VALUES ({', '.join('?' * (1 + len(self.columns)))})"

    @property
    def query(self) -> str:
        """The query of the cells of one row by its index."""
        columns = ", ".join(f'"{one}"' for one in self.columns)
        return f"SELECT {columns} FROM {self.name} WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsInFile(Sequence[T]):
    """Rows of a table that stand together; the file is open only while one is read."""

    table: LargeTable[T]
    file: Path
    start: int
    """Index of the first of them in the table."""
    length: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.length

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[T, ...]: ...
    def __getitem__(self, position: int | slice) -> T | tuple[T, ...]:
        """Read one row, or a slice.

        Raises:
            GradscopeError: The file is gone, or damaged.
        """
        found = range(self.start, self.start + self.length)[position]
        return self._row(found) if isinstance(found, int) else tuple(map(self._row, found))

    def _row(self, index: int) -> T:
        try:
            uri = f"{self.file.as_uri()}?mode=ro"
            # One for each row: sqlite3 refuses a connection that another thread has opened.
            with closing(sqlite3.connect(uri, uri=True)) as base:
                cells = base.execute(self.table.query, (index,)).fetchone()
            if cells is not None:
                return self.table.read(*cells)
        except sqlite3.Error as error:
            raise self._unreadable(str(error)) from error
        except (TypeError, ValueError) as error:
            raise self._unreadable("it is damaged") from error
        raise self._unreadable("it is damaged")

    def _unreadable(self, reason: str) -> GradscopeError:
        return GradscopeError(f"cannot read {self.table.content} of `{self.file}`: {reason}")


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
