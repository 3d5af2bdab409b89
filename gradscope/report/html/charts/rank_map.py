"""Ranks by step: loss and gradient norm of every rank in every step, and a table of the ranks."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gradscope.analysis.columns import Cells, Columns
from gradscope.analysis.ranks.job_summary import RankRow, RankSeries, rank_series
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.phrasing import aligned, counted
from gradscope.report.documents.run import own_findings, remarks, telling_rows
from gradscope.report.html.charts.axes import step_axis
from gradscope.report.html.charts.colours import (
    SEQUENTIAL,
    Trace,
    colour_axis,
    colour_scale,
    finite,
    logarithm,
    row_axis,
    state_trace,
    switch,
)
from gradscope.report.html.columns import Json, numbers, single_numbers
from gradscope.report.html.page import Chart
from gradscope.report.html.phrasing import SummaryCell, SummaryTable

_WIDTH = 500
"""Number of columns up to which each step has one of its own."""
_LOW, _HIGH, _ROW, _AROUND = 140, 760, 26, 120
"""Heights in pixels: minimum and maximum of all rows, of one row, and of the margins."""
_SCALE = colour_scale(SEQUENTIAL)
_CELLS = 128_000
"""Number of cells up to which steps have columns of their own."""
_GAPS = 40
"""Number of rows up to which there is a gap between two."""


def rank_map(report: Report) -> Chart | None:
    """Return the chart; None outside a job of several ranks."""
    found = rank_series(report.ranks) if len(report.ranks) > 1 else ()
    steps = sorted({step for one in found for step, _ in (*one.losses, *one.norms)})
    if not steps:
        return None
    columns = Columns(steps, min(_WIDTH, max(_CELLS // len(found), 1)))
    labels = [f"rank {one.rank}" for one in found]
    losses = [columns.mean(one.losses) for one in found]
    norms = [columns.largest(one.norms) for one in found]
    groups = [
        list(_traces(name, cells, labels, columns, is_logarithm=name != "loss"))
        for name, cells in (("loss", losses), ("gradient norm", norms))
        if any(cell is not None for row in cells for cell in row)
    ]
    traces = [trace for group in groups for trace in group]
    owners = [position for position, group in enumerate(groups) for _ in group]
    height = min(max(_ROW * len(labels), _LOW), _HIGH)
    return Chart(
        name="ranks",
        kind="plot",
        title="Ranks by step",
        caption=" ".join(_caption(found, columns)),
        content={
            "figure": {
                "data": [
                    {**trace, "visible": owner == 0}
                    for trace, owner in zip(traces, owners, strict=True)
                ],
                "layout": _layout(labels, columns),
            },
            "switches": [switch([str(group[0]["name"]) for group in groups], owners)],
        },
        height=height + _AROUND,
    )


def _traces(
    name: str,
    cells: Sequence[Cells],
    labels: Sequence[str],
    columns: Columns,
    *,
    is_logarithm: bool,
) -> Iterator[Mapping[str, Json]]:
    known = [cell for row in cells for cell in row if cell is not None]
    base: Mapping[str, Json] = {
        "type": "heatmap",
        "x": numbers([step - 0.5 for step in (*columns.first_steps, columns.steps[-1] + 1)]),
        "y": list(labels),
        "hoverongaps": False,
        "ygap": 1 if len(labels) <= _GAPS else 0,
    }
    broken = [[not (cell is None or math.isfinite(cell)) for cell in row] for row in cells]
    # Losses may be negative, norms are not.
    drawn = logarithm if is_logarithm else finite
    shown = f"%{{{'customdata' if is_logarithm else 'z'}:figure}}"
    ends = colour_axis(known, name) if is_logarithm else _linear_axis(known, name)
    yield {
        **base,
        "name": name,
        "z": [single_numbers(map(drawn, row)) for row in cells],
        "meta": {"isLogarithm": is_logarithm, "columns": _names(columns)},
        "colorscale": _SCALE,
        "hovertemplate": f"%{{y}}<br>%{{text}}<br>{name} {shown}<extra></extra>",
        **ends,
    }
    if any(map(any, broken)):
        hover = f"%{{text}}<br>{name} NaN or infinite"
        meta: Trace = {"columns": _names(columns)}
        yield state_trace(base, f"{name} NaN, inf", broken, "@broken", meta, hover)


def _names(columns: Columns) -> Sequence[str]:
    """Return the steps of each column as text."""
    firsts = columns.first_steps
    ends = [*(first - 1 for first in firsts[1:]), columns.steps[-1]]
    return [
        f"step {first:,}" if end <= first else f"steps {first:,} to {end:,}"
        for first, end in zip(firsts, ends, strict=True)
    ]


def _linear_axis(cells: Sequence[float], name: str) -> Mapping[str, Json]:
    finite = [cell for cell in cells if math.isfinite(cell)]
    return {
        "zmin": min(finite, default=0.0),
        "zmax": max(finite, default=1.0),
        "colorbar": {
            "title": {"text": name, "side": "right"},
            "thickness": 12,
            "outlinewidth": 0,
            "nticks": 5,
        },
    }


def _layout(labels: Sequence[str], columns: Columns) -> Mapping[str, Json]:
    ends = step_axis(columns.steps[0], columns.steps[-1], 0.5)
    return {
        "plot_bgcolor": "@panel",
        "meta": {"stepAxes": ["x"]},
        "showlegend": True,
        "xaxis": {"title": {"text": "step"}, "showgrid": False, "zeroline": False, **ends},
        "yaxis": row_axis(labels),
    }


def _caption(found: Sequence[RankSeries], columns: Columns) -> Iterator[str]:
    yield "A row is a rank."
    if any(one.is_part for one in found):
        yield "Norms are those of the part that a rank holds."
    else:
        yield "Norms are those that the optimizer of the rank saw."
    if columns.widest > 1:
        yield (
            f"A column covers up to {columns.widest:,} steps: the mean of their losses, the largest"
            " of their norms."
        )
    yield "Blank cells were not measured."


_SHOWN = 64
"""Number of ranks up to which each has a row; otherwise only those that differ from the first."""


def rank_tables(report: Report) -> tuple[SummaryTable, ...]:
    """Return a row for each rank; none outside of a job of several."""
    job = report.job
    if job is None or not job.is_joined:
        return ()
    rows = job.rows if len(job.rows) <= _SHOWN else telling_rows(job, report)[:_SHOWN]
    hidden = len(job.rows) - len(rows)
    parts = [*remarks(job, report.target.root)]
    if hidden:
        parts.append(f"{counted(hidden, 'more rank')}: gradscope report --output-format json.")
    return (
        SummaryTable(
            title="Ranks",
            header=("rank", "host", "steps", "passes", "last loss", "ended", "findings"),
            rows=tuple(tuple(_cells(row, report)) for row in rows),
            caption=" ".join(parts),
        ),
    )


def _cells(row: RankRow, report: Report) -> Iterator[SummaryCell]:
    # One host for all ranks tells nothing.
    host = "" if report.job is None or len({one.host for one in report.job.rows}) == 1 else row.host
    at = f" at {shown_site(row.site, report.target.root)}" if row.site is not None else ""
    is_fine = row.state == "finished"
    yield SummaryCell(text=f"{row.rank}", is_number=True, is_strong=True)
    yield SummaryCell(text=host)
    yield SummaryCell(text=f"{row.steps:,}", is_number=True)
    yield SummaryCell(text=f"{row.passes:,}", is_number=True)
    yield SummaryCell(text="" if row.loss is None else aligned(row.loss), is_number=True)
    yield SummaryCell(
        text=row.what if is_fine else f"{row.what}{at}", style="short" if is_fine else "error"
    )
    yield SummaryCell(text=", ".join(dict.fromkeys(own_findings(row.rank, report))), style="code")
