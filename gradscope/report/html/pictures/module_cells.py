"""The cells of a map of modules: the tree, what each is called, and how large it is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.recording.finding import Finding
from gradscope.report.html.module_places import ModulePlaces
from gradscope.report.html.pictures.lettering import lettered
from gradscope.report.html.words import module_of_finding

Area = Literal["root", "parameters", "equal"]
"""What a cell's own area stands for: the square root of its own elements, these, or nothing."""

_FLOOR = 0.002
"""Share of the whole that a module without parameters has, so that it can be found."""
_LONGEST = 40
_HOLDS_ALL = "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A module on the map."""

    name: str
    """As plotly is to letter it."""
    key: str
    parent: str
    """Its key; empty at the top."""
    row: ModuleRow | None
    """None of the cell that holds several models."""
    findings: tuple[Finding, ...]
    """Those about it, the worst first."""

    @property
    def module(self) -> int | None:
        """Index of its row."""
        return None if self.row is None else self.row.index

    @property
    def own_numel(self) -> int:
        """Elements of its own parameters."""
        return 0 if self.row is None else self.row.own_numel


def cells_of(report: Report) -> list[Cell]:
    """Return a cell for each module, and before them one that holds all of several on top.

    Losses and the like, which hold no parameters and lie in no model, have none.
    """
    rows, about = _shown(report.modules), _findings(report)
    is_held = sum(row.parent is None for row in rows) > 1
    top = Cell(name="all models", key=_HOLDS_ALL, parent="", row=None, findings=())
    cells = [
        Cell(
            name=_name(row, report.modules, is_marked=row.index in about),
            key=str(row.index),
            parent=str(row.parent) if row.parent is not None else _HOLDS_ALL * is_held,
            row=row,
            findings=tuple(about.get(row.index, ())),
        )
        for row in rows
    ]
    return [top, *cells] if is_held else cells


def _shown(rows: Sequence[ModuleRow]) -> list[ModuleRow]:
    """Return the modules that have cells: of those on top the ones that hold something."""
    holding = {row.parent for row in rows}
    found = [
        row for row in rows if row.parent is not None or row.parameters or row.index in holding
    ]
    return found or [row for row in rows if row.in_model]


def areas(cells: Sequence[Cell], area: Area) -> list[float]:
    """Return what each cell takes beside its children."""
    parents = {cell.parent for cell in cells}
    own: Callable[[int], float] = {"root": math.sqrt, "parameters": float, "equal": bool}[area]
    found = [own(cell.own_numel) for cell in cells]
    least = sum(found) * _FLOOR or 1.0
    return [
        max(value, least) if cell.key not in parents else value
        for cell, value in zip(cells, found, strict=True)
    ]


def _findings(report: Report) -> dict[int, list[Finding]]:
    places, found = ModulePlaces(report), dict[int, list[Finding]]()
    for finding in report.findings:
        named = [at for at in places.each(finding.modules) if at is not None]
        innermost = module_of_finding(finding, report)
        for module in named or ([] if innermost is None else [innermost]):
            found.setdefault(module, []).append(finding)
    return found


def _name(row: ModuleRow, rows: Sequence[ModuleRow], *, is_marked: bool) -> str:
    """Return a module's name in its parent; its class where it has none."""
    start = "" if row.parent is None else rows[row.parent].path
    is_below = start and row.path.startswith(f"{start}.")
    name = row.path[len(start) + 1 :] if is_below else row.path
    return ("⚠ " if is_marked else "") + lettered(name or row.class_name, _LONGEST)
