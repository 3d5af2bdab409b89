"""Tables whose rows are large: they are written at once, and read one at a time on access."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Generic, TypeVar, overload

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass

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
