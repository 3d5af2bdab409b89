"""A table as it is exported: columns and rows, and the columns of a line of code."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_path
from gradscope.frozen import dataclass
from gradscope.recording.records import Recording, Site
from gradscope.recording.store import load_recording
from gradscope.recording.streaming import RunInFile


# Without slots, in which `cached_property` could keep nothing.
@dataclass(frozen=True, kw_only=True)
class Source:
    """What is exported."""

    run: RunInFile | None
    """A run that can be read from its file a few steps at a time; of a job with many ranks, the
    first one's: their norms are not joined.
    """
    load: Callable[[], Report]
    """Reads all of it."""
    ranks: tuple[Path, ...] = ()
    """Recordings of the ranks of a job, by rank; none of a single process."""

    @cached_property
    def report(self) -> Report:
        """The report of all of it, which is read when it is asked for."""
        return self.load()

    @property
    def least(self) -> Report | RunInFile:
        """The run in its file if there is one, otherwise the report."""
        return self.report if self.run is None or not self.run.is_in_order else self.run

    def each_rank(self) -> Iterator[Recording]:
        """Yield the recording of each rank of a job, one in memory at a time."""
        return map(load_recording, self.ranks)


Kind = Literal["integer", "number", "text", "flag", "json"]

Json = Mapping[str, "Json"] | Sequence["Json"] | str | float | bool | None
Cell = Json
"""Cell of the type that its column's kind requires; None if not measured or not applicable."""
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTable:
    """A table that is made from a report and its recording."""

    name: str
    columns: tuple[tuple[str, Kind], ...]
    rows: Callable[[Report], Iterator[Row]]
    """Returns the rows in the order in which they were recorded."""
    streamed: Callable[[RunInFile], Iterator[Row]] | None = None
    """Returns the rows of a run that is not in memory; None if all of it has to be known first."""
    needs_order: bool = True
    """Whether these are only right if the steps and events in the file are in order."""
    of_ranks: Callable[[Iterable[Recording]], Iterator[Row]] | None = None
    """Returns the rows of a job from each of its ranks, for a table that compares them."""

    def rows_of(self, source: "Source") -> Iterator[Row]:
        """Return the rows, if possible without the whole recording in memory."""
        if source.ranks and self.of_ranks is not None:
            return self.of_ranks(source.each_rank())
        run = source.run
        if run is not None and self.streamed and (run.is_in_order or not self.needs_order):
            return self.streamed(run)
        return self.rows(source.report)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(name for name, _ in self.columns)


LOCATION_COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("file", "text"),
    ("line", "integer"),
    ("function", "text"),
    ("source", "text"),
)


def location_cells(site: Site | None, root: str) -> Row:
    """Return the cells of `LOCATION_COLUMNS`; all None without a line."""
    if site is None:
        return (None, None, None, None)
    return (shown_path(site.file, root), site.line, site.function, site.source)
