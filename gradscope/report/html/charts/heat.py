"""Norms of layers over the steps of a run, and the findings on their rows."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeVar

from gradscope.analysis.columns import Columns
from gradscope.analysis.layers import column_peaks, larger
from gradscope.analysis.norms import total_norm
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun
from gradscope.frozen import dataclass
from gradscope.recording.norm_table import (
    NOT_MEASURED,
    NormTable,
    are_unmeasured,
    measured_in,
    norms_of,
)
from gradscope.report.html.charts.step_marks import finding_text
from gradscope.report.html.columns import Json, ModuleIndices, numbers, positions

ROWS = 300
"""Number of parameters, or modules, up to which each has a row of its own."""
WIDTH = 500
"""Number of columns up to which each step has one of its own."""
_TURNS = 0.25
"""Share of steps with another optimizer than the step before, above which optimizers take turns."""

Number = TypeVar("Number", int, float)
Cell = float | None
"""Value of a cell; None without a gradient, or with weights of zero."""
Quantity = Literal["gradient", "update", "weight"]
"""`update` is the norm of a step's change over that of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A parameter, or a module with all parameters in it and below."""

    name: str
    parameter: int | None
    """Index of the parameter; None for a module."""
    module: int | None
    held: tuple[int, ...]
    """Indices of the parameters of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatColumn:
    """A column of a heatmap: neighbouring steps."""

    start: int
    """Step where it begins."""
    first: int
    """First measured step; `start` without any."""
    last: int
    telling: int
    """Step with the largest norm of all."""
    rank: tuple[bool, float]
    """Sort key of this step by its importance."""
    is_measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A quantity of each row by column: the largest of a column's steps, NaN if one is."""

    quantity: Quantity
    columns: tuple[HeatColumn, ...]
    cells: tuple[dict[int, Cell], ...]
    """By row: the cells of its columns. Columns without measurements are omitted."""
    last_step: int
    widest: int
    """Largest number of steps per column."""

    def grouped(self, most: int) -> "Heat":
        """Return the same in at most this many columns, each of as many neighbouring ones."""
        size = -(-len(self.columns) // most)
        if size < 2:
            return self
        cells: list[dict[int, Cell]] = [{} for _ in self.cells]
        for line, own in zip(self.cells, cells, strict=True):
            for column, value in line.items():
                _add(own, column // size, value)
        starts = range(0, len(self.columns), size)
        return Heat(
            quantity=self.quantity,
            columns=tuple(_joined(self.columns[start : start + size]) for start in starts),
            cells=tuple(cells),
            last_step=self.last_step,
            widest=self.widest * size,
        )


def _joined(columns: Sequence[HeatColumn]) -> HeatColumn:
    measured = [one for one in columns if one.is_measured] or columns[:1]
    largest = max(measured, key=lambda one: one.rank)  # the first of several
    return replace(largest, start=columns[0].start, first=measured[0].first, last=measured[-1].last)


def _add(line: dict[int, Cell], column: int, value: Cell) -> None:
    line[column] = larger(line[column], value) if column in line else value


def heat_rows(report: Report, most: int = ROWS) -> list[HeatRow]:
    """Return a row for each parameter; of more than fit, for each module as deep as fits."""
    positions = ModuleIndices(report)
    if len(report.parameters) <= most:
        return [
            HeatRow(
                name=row.name,
                parameter=row.index,
                module=positions.of(row.module),
                held=(row.index,),
            )
            for row in report.parameters
        ]
    depths = range(max((row.depth for row in report.modules), default=0), 0, -1)
    cuts = (_modules_at(report, positions, depth) for depth in depths)
    fitting = next((rows for rows in cuts if len(rows) <= most), None)
    return _modules_at(report, positions, 0) if fitting is None else fitting


def _modules_at(report: Report, positions: ModuleIndices, depth: int) -> list[HeatRow]:
    """Return a row for each module down to a depth, with all modules that it represents."""
    held: dict[int | None, list[int]] = {}
    for parameter in report.parameters:
        chain = positions.above(positions.of(parameter.module))
        module = chain[min(depth, len(chain) - 1)] if chain else None
        held.setdefault(module, []).append(parameter.index)
    return [
        HeatRow(name=_name(report, module), parameter=None, module=module, held=tuple(parameters))
        for module, parameters in held.items()
    ]


def _name(report: Report, module: int | None) -> str:
    if module is None:
        return "outside of models"
    return report.modules[module].path or report.modules[module].class_name


def heats(report: Report, rows: Sequence[HeatRow], width: int = WIDTH) -> list[Heat]:
    """Return what there is of each quantity; none that was never measured."""
    run = report.training_run
    if run is None:
        return []
    norms = norms_of(report.recording)
    found = [_gradients(norms, rows, _columns(run, width))]
    # Weights and updates are measured only in some steps: the others would be empty columns.
    steps = [step.step for step in run.steps if _has_updates(norms, step.step)]
    columns = Columns(steps, width, has_gaps=run.missing > 0)
    found.append(_heat("update", norms, rows, columns, _update))
    found.append(_heat("weight", norms, rows, columns, _weight))
    return [heat for heat in found if any(heat.cells)]


def _columns(run: TrainingRun, width: int) -> Columns:
    """Return a column for each step; for each turn, where optimizers take turns."""
    changes = sum(one.optimizer != other.optimizer for one, other in pairwise(run.steps))
    if changes > _TURNS * len(run.steps):
        return Columns.over(run, width)
    return Columns([step.step for step in run.steps], width, has_gaps=run.missing > 0)


def _gradients(norms: NormTable, rows: Sequence[HeatRow], columns: Columns) -> Heat:
    """Return the gradient norms; those of single parameters are found much faster."""
    if any(row.parameter is None for row in rows):
        return _heat("gradient", norms, rows, columns, _gradient)
    peaks = column_peaks(norms, columns)
    totals = ((step, measured_in(_of_step(norms.gradients, norms, step))) for step in columns.steps)
    cells = [peaks.get(position, {}) for row in rows for position in row.held]
    return _heat_of("gradient", columns, cells, totals)


def _heat_of(
    quantity: Quantity,
    columns: Columns,
    cells: Iterable[dict[int, Cell]],
    by_step: Iterable[tuple[int, Sequence[Cell]]],
) -> Heat:
    best = _telling(columns, by_step)
    return Heat(
        quantity=quantity,
        columns=tuple(
            HeatColumn(
                start=start,
                first=first,
                last=last,
                telling=best[column][1] if column in best else start,
                rank=best[column][0] if column in best else (False, 0.0),
                is_measured=column in best,
            )
            for column, (start, (first, last)) in enumerate(
                zip(columns.first_steps, columns.ends, strict=True)
            )
        ),
        cells=tuple(cells),
        last_step=columns.steps[-1] if columns.steps else 0,
        widest=columns.widest,
    )


def _of_step(column: Sequence[Number], norms: NormTable, step: int) -> Sequence[Number]:
    rows = norms.rows_of(step)
    return column[rows.start : rows.stop]


def _has_updates(norms: NormTable, step: int) -> bool:
    return not are_unmeasured(_of_step(norms.updates, norms, step))


_Picker = Callable[[Sequence[float]], Sequence[float]]
"""Picks the numbers of a row's parameters from those of a step."""
_Reading = Callable[[_Picker, Sequence[float], Sequence[float], Sequence[float]], Cell]
"""Returns a row's number in a step from the gradients, weights and updates of that."""


def _heat(
    quantity: Quantity,
    norms: NormTable,
    rows: Sequence[HeatRow],
    columns: Columns,
    reading: _Reading,
) -> Heat:
    owners = _Owners(rows)
    cells: list[dict[int, Cell]] = [{} for _ in rows]
    by_step: list[tuple[int, list[Cell]]] = []
    for step in columns.steps:
        column = columns.position(step)
        if column is None:
            continue
        of_step = (
            _of_step(norms.gradients, norms, step),
            _of_step(norms.weights, norms, step),
            _of_step(norms.updates, norms, step),
        )
        pickers = owners.pickers(norms, step).items()
        found = {row: reading(pick, *of_step) for row, pick in pickers}
        for position, value in found.items():
            _add(cells[position], column, value)
        by_step.append((step, list(found.values())))
    return _heat_of(quantity, columns, cells, by_step)


def _telling(
    columns: Columns, by_step: Iterable[tuple[int, Sequence[Cell]]]
) -> dict[int, tuple[tuple[bool, float], int]]:
    """Return, by column, the first step with the largest norm of all, after its rank."""
    best: dict[int, tuple[tuple[bool, float], int]] = {}
    for step, values in by_step:
        column = columns.position(step)
        if column is None:
            continue
        rank = _rank(values)
        if column not in best or rank > best[column][0]:
            best[column] = rank, step
    return best


class _Owners:
    """Where the measurements of each row are among those of a step.

    Most steps measure the same parameters as the step before.
    """

    def __init__(self, rows: Sequence[HeatRow]) -> None:
        self._owners = {
            parameter: position for position, row in enumerate(rows) for parameter in row.held
        }
        self._measured: Sequence[int] = ()
        self._pickers: dict[int, _Picker] = {}

    def pickers(self, norms: NormTable, step: int) -> dict[int, _Picker]:
        """Return by row what picks its parameters' numbers from those of a step."""
        measured = _of_step(norms.parameters, norms, step)
        if not measured:  # many steps of a long run measure nothing
            return {}
        if measured != self._measured:
            self._measured, self._pickers = measured, self._pickers_of(measured)
        return self._pickers

    def _pickers_of(self, measured: Sequence[int]) -> dict[int, _Picker]:
        """Return what picks the numbers of each row's parameters from those of a step."""
        offsets: dict[int, list[int]] = {}
        for offset, parameter in enumerate(measured):
            if (owner := self._owners.get(parameter)) is not None:
                offsets.setdefault(owner, []).append(offset)
        # A slice, because an item getter of a single offset returns no tuple.
        return {
            row: itemgetter(*own) if len(own) > 1 else itemgetter(slice(own[0], own[0] + 1))
            for row, own in offsets.items()
        }


def _gradient(
    pick: _Picker, gradients: Sequence[float], _: Sequence[float], __: Sequence[float]
) -> Cell:
    return _total(pick(gradients))


def _update(
    pick: _Picker, _: Sequence[float], weights: Sequence[float], updates: Sequence[float]
) -> Cell:
    own = pick(updates)
    of_updated = zip(pick(weights), own, strict=True)
    update = _total(own)
    weight = _total([weight for weight, update in of_updated if update != NOT_MEASURED])
    return None if update is None or not weight else update / weight


def _weight(
    pick: _Picker, _: Sequence[float], weights: Sequence[float], __: Sequence[float]
) -> Cell:
    return _total(pick(weights))


def _total(norms: Sequence[float]) -> Cell:
    known = measured_in(norms)
    return known[0] if len(known) == 1 else total_norm(known)


def _rank(values: Iterable[Cell]) -> tuple[bool, float]:
    """Return the sort key of steps by their importance: broken ones come last."""
    known = [value for value in values if value is not None]
    is_broken = not all(map(math.isfinite, known))
    return is_broken, math.inf if is_broken else total_norm(known) or 0.0


def marks_on_rows(
    rows: Sequence[HeatRow], labels: Sequence[str], report: Report
) -> Iterator[Mapping[str, Json]]:
    """Yield the findings that a step shows, on the rows that they are about."""
    owners = {parameter: position for position, row in enumerate(rows) for parameter in row.held}
    indices = {alias: row.index for row in report.parameters for alias in (row.name, *row.aliases)}
    marks = []
    # The worst come last, and are drawn on top.
    for finding in reversed(report.findings):
        about = {owners[indices[name]] for name in finding.parameters if name in indices}
        # A finding about every row distinguishes none.
        if finding.step is not None and len(about) < len(rows):
            marks += [(finding, position) for position in sorted(about)]
    if not marks:
        return
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": "findings",
        "showlegend": False,
        "x": numbers(finding.step for finding, _ in marks),
        "y": [labels[position] for _, position in marks],
        "text": [finding_text(finding, report) for finding, _ in marks],
        "hovertemplate": "%{text}<br>%{y}<extra></extra>",
        "marker": {
            "symbol": "circle",
            "size": 9,
            "color": [f"@{finding.severity}" for finding, _ in marks],
            "line": {"width": 1.5, "color": "@paper"},
        },
        "meta": {
            "links": {
                "step": positions(finding.step for finding, _ in marks),
                "module": positions(rows[position].module for _, position in marks),
                "parameter": positions(rows[position].parameter for _, position in marks),
            },
            # The band of a selected row shows the selection, and no ring.
            "under": True,
        },
    }
