"""A table of a recording's file: converts records to rows and back."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from gradscope.recording.encoding import Cell

Record = TypeVar("Record")
Cells = tuple[Cell | bytes, ...]
Row = tuple[Any, ...]
"""A row of sqlite3: its index first, then the columns."""

BATCH = 4_096
"""Number of rows read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[Record]):
    """A table whose rows are in the order of the records."""

    name: str
    columns: tuple[str, ...]
    """Name and type of each column, without the index."""
    write: Callable[[Record], Cells]
    """Returns the cells of a record, without its index."""
    read_many: Callable[[Sequence[Row]], Iterable[Record]]
    """Returns the records of rows, at least one; many at once are faster than one by one."""
    later: frozenset[str] = frozenset()
    """Names of columns that files of earlier versions lack; they are read as NULL."""
    is_late: bool = False
    """Whether files of earlier versions lack the whole table; it is read as empty."""
    owner: str | None = None
    """Name of a first column that says to what a row belongs; indices are counted per owner."""

    @property
    def definition(self) -> str:
        """Statement that creates it; `id` is the record's index, counted from 0."""
        columns = ", ".join(self.columns)
        if self.owner is None:
            return f"CREATE TABLE {self.name} (id INTEGER PRIMARY KEY, {columns})"
        keys = f"{self.owner} INTEGER, id INTEGER"
        key = f"PRIMARY KEY ({self.owner}, id)"
        return f"CREATE TABLE {self.name} ({keys}, {columns}, {key}) WITHOUT ROWID"

    @property
    def insertion(self) -> str:
        """Statement that adds a row."""
        cells = len(self.columns) + (1 if self.owner is None else 2)
        return f"INSERT INTO {self.name} VALUES ({', '.join('?' * cells)})"

    def insertion_of(self, columns: Sequence[str]) -> str:
        """Return the statement that adds a row with some columns."""
        names, cells = ", ".join(("id", *columns)), ", ".join("?" * (1 + len(columns)))
        return f"INSERT INTO {self.name} ({names}) VALUES ({cells})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, without the index, as SQL writes them."""
        return tuple(column.split()[0] for column in self.columns)

    @property
    def replacement(self) -> str:
        """Statement that rewrites a row."""
        return self.insertion.replace("INSERT", "REPLACE", 1)

    def rows(self, base: sqlite3.Connection) -> Iterator[Row]:
        """Return the rows in a file, in order; the owner, if there is one, comes first."""
        present = {name for _, name, *_ in base.execute(f"PRAGMA table_info({self.name})")}
        if self.is_late and not present:
            return iter(())
        keys = "id" if self.owner is None else f"{self.owner}, id"
        lacking = self.later - present
        read = ", ".join("NULL" if name.strip('"') in lacking else name for name in self.names)
        return base.execute(f"SELECT {keys}, {read} FROM {self.name} ORDER BY {keys}")

    def records(self, base: sqlite3.Connection) -> tuple[Record, ...]:
        """Return the records in a file, for a table whose rows have no owners."""
        rows = self.rows(base)
        batches = iter(lambda: list(islice(rows, BATCH)), [])
        return tuple(chain.from_iterable(map(self.read_many, batches)))

    def read(self, row: Row) -> Record:
        """Return the record of one row."""
        (record,) = self.read_many([row])
        return record
