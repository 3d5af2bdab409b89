"""Steps by layers: the gradient norm of every parameter in every step of a run."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.report.html.charts.axes import (
    Panel,
    common_prefix,
    row_labels,
    shortened,
    stacked,
    step_axis,
)
from gradscope.report.html.charts.colours import (
    SEQUENTIAL,
    Trace,
    colour_axis,
    colour_scale,
    logarithm,
    row_axis,
    state_trace,
    switch,
)
from gradscope.report.html.charts.heat import (
    ROWS,
    WIDTH,
    Cell,
    Heat,
    HeatColumn,
    HeatRow,
    Quantity,
    heat_rows,
    heats,
    marks_on_rows,
)
from gradscope.report.html.charts.long_runs import (
    BROKEN,
    MISSING,
    ZERO,
    edges,
    finer_levels,
    width_of,
)
from gradscope.report.html.charts.step_marks import (
    MarkRow,
    finding_marks,
    mark_panel,
)
from gradscope.report.html.columns import Json, positions, single_numbers
from gradscope.report.html.page import Chart

_NAMES: Mapping[Quantity, str] = {
    "gradient": "gradient norm",
    "update": "update / weight",
    "weight": "weight norm",
}
_LOW, _HIGH, _ROW = 220, 760, 15
"""Heights in pixels: minimum and maximum of all rows, and of one row."""
_STRIP = 20
_AROUND = 120
_UNIT = 150
_SCALE = colour_scale(SEQUENTIAL)
_MARKED = 40
"""Number of rows up to which a finding is marked on each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A state without a number on a logarithmic scale, with a colour of its own."""

    name: str
    index: int
    color: str
    holds: Callable[[Cell], bool]


_STATES = (
    _State(name="0", index=ZERO, color="@zero", holds=lambda cell: cell == 0),
    _State(name="NaN, inf", index=BROKEN, color="@broken", holds=lambda cell: not _is_finite(cell)),
)
_NO_GRADIENT = _State(
    name="no gradient", index=MISSING, color="@none", holds=lambda cell: cell is None
)


def _is_finite(cell: Cell) -> bool:
    return cell is None or math.isfinite(cell)


def heatmap(report: Report) -> Chart | None:
    """Return the chart; None if nothing was measured."""
    rows = heat_rows(report)[:ROWS]
    finest = heats(report, rows, width_of(rows))
    if not finest:
        return None
    found = [heat.grouped(WIDTH) for heat in finest]
    prefix = common_prefix([row.name for row in rows])
    labels = row_labels([row.name.removeprefix(prefix) for row in rows])
    groups = [list(_traces(heat, rows, labels)) for heat in found]
    owners = [position for position, group in enumerate(groups) for _ in group]
    shown = [trace for group in groups for trace in group]
    marks = MarkRow(name="findings", symbol="triangle-down", marks=tuple(finding_marks(report)))
    height = min(max(_ROW * len(rows), _LOW), _HIGH)
    panels = [
        *([mark_panel([marks], _STRIP / _UNIT)] if marks.marks else []),
        Panel(
            height=height / _UNIT,
            traces=[
                *({**trace, "visible": at == 0} for trace, at in zip(shown, owners, strict=True)),
                *marks_on_rows(rows, labels, report),
            ],
            axis=row_axis(labels),
        ),
    ]
    data, layout = stacked(panels, "step")
    names = [_NAMES[heat.quantity] for heat in found]
    return Chart(
        name="heatmap",
        kind="plot",
        title="Layers by step",
        caption=" ".join(_caption(report, rows, found, prefix)),
        content={
            "figure": {"data": data, "layout": {**layout, **_layout(found[0], layout["xaxis"])}},
            "switches": [switch(names, owners, before=len(panels) - 1)],
            "finer": finer_levels(finest, found),
        },
        height=height + _AROUND,
    )


def _layout(heat: Heat, axis: Json) -> Trace:
    given = axis if isinstance(axis, Mapping) else {}
    ends = step_axis(heat.columns[0].first, heat.last_step, 0.5)
    return {
        "plot_bgcolor": "@panel",
        "xaxis": {**given, **ends, "showgrid": False, "zeroline": False},
        "showlegend": True,
    }


def _traces(heat: Heat, rows: Sequence[HeatRow], labels: Sequence[str]) -> Iterator[Trace]:
    name = _NAMES[heat.quantity]
    base = _base(heat, rows, labels)
    yield {
        **base,
        "name": name,
        "z": [single_numbers(map(logarithm, line)) for line in _lines(heat)],
        "meta": {**_meta(heat, rows), "isLogarithm": True},
        "colorscale": _SCALE,
        "hovertemplate": f"%{{y}}<br>%{{text}}<br>{name} %{{customdata:figure}}<extra></extra>",
        **colour_axis([cell for line in heat.cells for cell in line.values()], name),
    }
    states = (*_STATES, _NO_GRADIENT) if heat.quantity == "gradient" else _STATES
    for state in states:
        # A trace for each state that occurs: the legend names no other.
        if any(state.holds(cell) for line in heat.cells for cell in line.values()):
            yield _state_trace(state, heat, base, _meta(heat, rows))


def _state_trace(state: _State, heat: Heat, base: Trace, meta: Trace) -> Trace:
    name = f"{_NAMES[heat.quantity]} {state.name}"
    if state is _NO_GRADIENT:
        name = state.name
    cells = (
        [column in line and state.holds(line[column]) for column in range(len(heat.columns))]
        for line in heat.cells
    )
    found = state_trace(base, name, cells, state.color, meta, f"%{{text}}<br>{name}")
    # The bands of the selection are drawn once, for the trace of the numbers.
    return {**found, "meta": {**meta, "under": True, "state": state.index}}


def _base(heat: Heat, rows: Sequence[HeatRow], labels: Sequence[str]) -> Trace:
    return {
        "type": "heatmap",
        "x": edges(heat),
        "y": list(labels),
        # A gap has nothing to tell.
        "hoverongaps": False,
        # Between very many rows, gaps would take more room than these.
        "ygap": 1 if len(rows) <= _MARKED else 0,
    }


def _meta(heat: Heat, rows: Sequence[HeatRow]) -> Trace:
    return {
        "quantity": heat.quantity,
        "rows": {
            "module": positions(row.module for row in rows),
            "parameter": positions(row.parameter for row in rows),
        },
        "steps": positions(one.telling for one in heat.columns),
        "columns": list(map(_told, heat.columns)),
    }


def _told(column: HeatColumn) -> str:
    if column.first == column.last:
        return f"step {column.first:,}"
    return f"the largest of steps {column.first:,} to {column.last:,}"


def _lines(heat: Heat) -> Iterator[list[Cell]]:
    for line in heat.cells:
        yield [line.get(column) for column in range(len(heat.columns))]


def _caption(
    report: Report, rows: Sequence[HeatRow], found: Sequence[Heat], prefix: str
) -> Iterator[str]:
    if rows[0].parameter is None:
        size = sum(len(row.held) for row in rows)
        what = f"A row is a module with all parameters below it, {size:,} in all"
        more = len(report.parameters) - size
        yield f"{what}; {more:,} more are omitted." if more else f"{what}."
    else:
        yield "A row is a parameter, in the order of the model."
    if prefix:
        yield f"Names omit the common prefix {shortened(printable(prefix), 60)}"
    widest = found[0].widest
    if widest > 1:
        yield (
            f"Zoomed out, a column covers up to {widest:,} steps, and its colour shows the "
            "largest norm. Click to select the step with the largest norm."
        )
    if len(found) > 1:
        yield "Updates and weights are measured at some steps, and drawn up to the next one."
    yield "Blank cells were not measured."


def two_steps(steps: int) -> Chart:
    """Return the chart of a run of so many steps; the heatmap of layers has its numbers."""
    return Chart(
        name="two-steps",
        kind="two-steps",
        title="Two steps compared",
        caption=(
            "Gradient norms at two steps, the largest change first. A column of several steps has"
            " their largest norms. Click a layer to see all its steps as a line in the curves."
            " The address keeps both steps and the layer."
        ),
        content={"steps": steps},
        height=180,
    )
