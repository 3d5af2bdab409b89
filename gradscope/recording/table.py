"""A table of a recording's file: how records become rows and come back."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gradscope.recording.encoding import Cell

Record = TypeVar("Record")
Cells = tuple[Cell, ...]
Row = tuple[Any, ...]
"""A row as sqlite3 gives it: its place first, then the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[Record]):
    """A table whose rows stand in the order of the records."""

    name: str
    columns: tuple[str, ...]
    """Name and type of each, without the place."""
    write: Callable[[Record], Cells]
    """Gives the cells of a record, without its place."""
    read: Callable[[Row], Record]
    later: frozenset[str] = frozenset()
    """Names of columns that files of earlier versions lack; read as NULL from these."""

    @property
    def definition(self) -> str:
        """The statement that creates it; `id` is the record's place, counted from 0."""
        return f"CREATE TABLE {self.name} (id INTEGER PRIMARY KEY, {', '.join(self.columns)})"

    @property
    def insertion(self) -> str:
        """The statement that adds a row."""
        return f"INSERT INTO {self.name} VALUES (?{', ?' * len(self.columns)})"

    @property
    def replacement(self) -> str:
        """The statement that writes a row again."""
        return self.insertion.replace("INSERT", "REPLACE", 1)

    def selection(self, lacking: Container[str] = ()) -> str:
        """Return the statement that reads every row, NULL in place of columns that are lacking."""
        names = (column.split()[0] for column in self.columns)
        read = ", ".join("NULL" if name in lacking else name for name in names)
        return f"SELECT id, {read} FROM {self.name} ORDER BY id"
