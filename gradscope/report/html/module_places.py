"""Where the modules of a report stand among its rows, by their paths."""

from collections.abc import Iterable
from functools import cached_property

from gradscope.analysis.report import Report


class ModulePlaces:
    """The rows of a report's modules, found by path or alias."""

    def __init__(self, report: Report) -> None:
        self._rows = report.modules
        self._places: dict[str, int] = {}
        for row in report.modules:
            # A script may make models of equal paths: what the run names by it is the first.
            for path in (row.path, *row.aliases):
                self._places.setdefault(path, row.index)

    def of(self, path: str | None) -> int | None:
        """Return the row of a path; None for no path, and one that no module has."""
        return None if path is None else self._places.get(path)

    def each(self, paths: Iterable[str | None]) -> list[int | None]:
        """Return the rows of paths."""
        return [self.of(path) for path in paths]

    def above(self, module: int | None) -> tuple[int, ...]:
        """Return a module after all that it lies in, the outermost first."""
        return () if module is None else self._chains[module]

    @cached_property
    def _chains(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for row in self._rows:
            chain, at = [row.index], row.parent
            while at is not None and at not in found:
                chain.append(at)
                at = self._rows[at].parent
            above = () if at is None else found[at]
            found[row.index] = (*above, *reversed(chain))
        return found
