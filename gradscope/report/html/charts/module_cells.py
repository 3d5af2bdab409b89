"""The cells of a map of modules: the tree, sizes, and measures."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gradscope.analysis.norms import total_norm
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow, ParameterRow
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding
from gradscope.report.html.charts.axes import lettered
from gradscope.report.html.columns import ModuleIndices
from gradscope.report.html.phrasing import module_of_finding

ModuleState = Literal["number", "broken", "zero", "none", "frozen", "empty"]
"""`none`: its parameters got no gradient; `empty`: it has nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMeasures:
    """The numbers of one module; None for missing ones."""

    norm: float | None
    """Gradient norm over all parameters."""
    rms: float | None
    """Root mean square of the gradients' elements."""
    to_weight: float | None
    """Norm of the gradients over that of the parameters."""
    output: float | None
    """Gradient norm at the outputs of all calls."""
    gain: float | None
    """Factor by which backward through a call changes the norm; for several calls, the factor
    farthest from 1.
    """
    absence: ModuleState
    """Meaning of a missing gradient of the parameters."""


def module_measures(report: Report) -> list[ModuleMeasures]:
    """Return the numbers of each module of a report."""
    reached = _reached_elements(report)
    reaches = _reaches(report)
    return [
        _measures(row, reached.get(row.index, 0), reaches.get(row.index, frozenset()))
        for row in report.modules
    ]


def state_of(value: float | None, absence: ModuleState = "empty") -> ModuleState:
    """Return the state of a number, or `absence` without one."""
    if value is None:
        return absence
    if not math.isfinite(value):
        return "broken"
    return "zero" if value == 0.0 else "number"


def _measures(row: ModuleRow, reached: int, reaches: frozenset[str]) -> ModuleMeasures:
    norm, weight = row.grad_norm, row.weight_norm
    return ModuleMeasures(
        norm=norm,
        rms=None if norm is None or not reached else norm / math.sqrt(reached),
        to_weight=None if norm is None or not weight else norm / weight,
        output=total_norm(
            call.output_grad_norm for call in row.calls if call.output_grad_norm is not None
        ),
        gain=_farthest(call.gain for call in row.calls),
        absence=_absence(row, reaches),
    )


def _absence(row: ModuleRow, reaches: frozenset[str]) -> ModuleState:
    if not row.parameters:
        return "empty"
    if not row.trainable_parameters:
        return "frozen"
    return "none" if "none" in reaches else "empty"


def _farthest(gains: Iterable[float | None]) -> float | None:
    """Return the gain farthest from 1; broken ones come before all others."""
    found = [gain for gain in gains if gain is not None]
    return max(found, key=_distance, default=None)


def _distance(gain: float) -> float:
    if not math.isfinite(gain):
        return math.inf
    return abs(math.log10(gain)) if gain else math.inf


def _reached_elements(report: Report) -> Mapping[int, int]:
    """Return, by module, the number of elements with a gradient in it and below it."""
    positions, found = ModuleIndices(report), dict[int, int]()
    for parameter in report.parameters:
        if parameter.grad is not None:
            for module in _enclosing_modules(parameter, positions):
                found[module] = found.get(module, 0) + parameter.numel
    return found


def _reaches(report: Report) -> Mapping[int, frozenset[str]]:
    """Return, by module, what backward left in the parameters in it and below it."""
    positions, found = ModuleIndices(report), dict[int, set[str]]()
    for parameter in report.parameters:
        for module in _enclosing_modules(parameter, positions):
            found.setdefault(module, set()).add(parameter.reach)
    return {module: frozenset(reaches) for module, reaches in found.items()}


def _enclosing_modules(parameter: ParameterRow, positions: ModuleIndices) -> frozenset[int]:
    """Return the modules that hold a parameter under any of its names."""
    owners = [
        parameter.module,
        *(alias.rpartition(".")[0] for alias in parameter.aliases),
    ]
    return frozenset(module for owner in owners for module in positions.above(positions.of(owner)))


Area = Literal["root", "parameters", "equal"]
"""Measure of a cell's own area: the square root of the number of its own elements, that number, or
nothing.
"""

_FLOOR = 0.002
"""Minimum share of the whole, which makes a module without parameters visible."""
_LEGIBLE, _LEGIBLE_TOGETHER = 0.05, 0.6
"""Minimum share of a leaf with parameters where areas are no exact measure, and of all such leaves
together: labels fit into leaves unless these are very many.
"""
_LONGEST = 40
_HOLDS_ALL = "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A module on the map."""

    name: str
    """Name as plotly displays it."""
    key: str
    parent: str
    """Key of the parent; empty at the top."""
    row: ModuleRow | None
    """Row of the module; None for the cell that contains several models."""
    findings: tuple[Finding, ...]
    """Findings about the module, worst first."""

    @property
    def module(self) -> int | None:
        """Index of its row."""
        return None if self.row is None else self.row.index

    @property
    def own_numel(self) -> int:
        """Number of elements of its own parameters."""
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
    """Return the modules with cells; at the top, only those with content."""
    holding = {row.parent for row in rows}
    found = [
        row for row in rows if row.parent is not None or row.parameters or row.index in holding
    ]
    return found or [row for row in rows if row.in_model]


def leaf_count(cells: Sequence[Cell]) -> int:
    """Return the number of cells that contain no others, but parameters."""
    parents = {cell.parent for cell in cells}
    return sum(cell.key not in parents and cell.own_numel > 0 for cell in cells)


def areas(cells: Sequence[Cell], area: Area) -> list[float]:
    """Return the area of each cell besides its children."""
    parents = {cell.parent for cell in cells}
    # A bool counts as 1 for each cell with parameters.
    own: Callable[[int], float] = {"root": math.sqrt, "parameters": float, "equal": bool}[area]
    found = [own(cell.own_numel) for cell in cells]
    leaves = leaf_count(cells)
    legible = min(_LEGIBLE, _LEGIBLE_TOGETHER / leaves) if area == "root" and leaves else _FLOOR
    whole = sum(found)
    # Without any parameters, cells are equal.
    least = [whole * (legible if cell.own_numel else _FLOOR) or 1.0 for cell in cells]
    return [
        max(value, floor) if cell.key not in parents else value
        for cell, value, floor in zip(cells, found, least, strict=True)
    ]


def _findings(report: Report) -> dict[int, list[Finding]]:
    positions, found = ModuleIndices(report), dict[int, list[Finding]]()
    for finding in report.findings:
        named = [at for at in positions.each(finding.modules) if at is not None]
        innermost = module_of_finding(finding, report)
        for module in named or ([] if innermost is None else [innermost]):
            found.setdefault(module, []).append(finding)
    return found


def _name(row: ModuleRow, rows: Sequence[ModuleRow], *, is_marked: bool) -> str:
    """Return a module's name in its parent; its class if it has none."""
    start = "" if row.parent is None else rows[row.parent].path
    is_below = start and row.path.startswith(f"{start}.")
    name = row.path[len(start) + 1 :] if is_below else row.path
    return ("⚠ " if is_marked else "") + lettered(name or row.class_name, _LONGEST)
