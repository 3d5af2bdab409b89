"""The modules of a report: their paths among its rows, and their columns of JSON."""

from collections.abc import Iterable
from functools import cached_property

from gradscope.analysis.report import Report
from gradscope.report.html.columns import Json, numbers, positions, texts


class ModulePlaces:
    """The rows of a report's modules, found by path or alias."""

    def __init__(self, report: Report) -> None:
        self._rows = report.modules
        self._positions: dict[str, int] = {}
        for row in report.modules:
            # A script may make models of equal paths: what the run names by it is the first.
            for path in (row.path, *row.aliases):
                self._positions.setdefault(path, row.index)

    def of(self, path: str | None) -> int | None:
        """Return the row of a path; None for no path, and one that no module has."""
        return None if path is None else self._positions.get(path)

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


def module_columns(report: Report) -> dict[str, Json]:
    """Return a column for each thing that pictures want to know of modules.

    `parent` is the place of the parent's row, `found` the places of the findings that are about it,
    by place in the sheet's cards.
    """
    rows = report.modules
    return {
        "path": texts(row.path for row in rows),
        "class": texts(row.class_name for row in rows),
        "parent": positions(row.parent for row in rows),
        "parameters": numbers(row.parameters for row in rows),
        "numel": numbers(row.numel for row in rows),
        "norm": numbers(row.grad_norm for row in rows),
        "weight": numbers(row.weight_norm for row in rows),
        "gain": numbers(next((call.gain for call in row.calls), None) for row in rows),
    }
