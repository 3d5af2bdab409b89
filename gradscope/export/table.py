"""A table as it is exported: names and kinds of columns, and rows that come one by one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.report import Report

Kind = Literal["integer", "number", "text", "flag", "json"]

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | bool | None
Cell = Json
"""As its column's kind says; None is what was not measured, or does not apply."""
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTable:
    """A table that is made from a report and its recording."""

    name: str
    columns: tuple[tuple[str, Kind], ...]
    rows: Callable[[Report], Iterator[Row]]
    """Ordered as they were recorded."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(name for name, _ in self.columns)
