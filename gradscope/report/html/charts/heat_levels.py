"""The finer columns of the heatmap of a long run, which the page shows when it is zoomed in.

At first a column of the heatmap covers many steps. Beside these columns the page has finer ones, as
many as there is room for; `assets/heat_levels.js` puts those in view together.
"""

import math
from collections.abc import Sequence

from gradscope.analysis.report import Report
from gradscope.report.html.charts.colours import logarithm
from gradscope.report.html.charts.heat import WIDTH, Cell, Heat, HeatRow, heats
from gradscope.report.html.columns import Json, numbers, positions, single_numbers

_CELLS, _COLUMNS = 100_000, 8_000
"""Maximum number of cells of a level, and of its columns: half a megabyte of a page."""
ZERO, BROKEN, MISSING = range(3)
"""States of cells without a logarithm, as the page knows them."""


def finer_levels(report: Report, rows: Sequence[HeatRow], found: Sequence[Heat]) -> dict[str, Json]:
    """Return the finer columns by quantity; none where the heatmap has a column for each step.

    Args:
        report: Report of a run.
        rows: The rows of the heatmap.
        found: What the heatmap shows at first.
    """
    coarse = {heat.quantity: heat.columns.count for heat in found if heat.columns.widest > 1}
    width = min(_CELLS // max(len(rows), 1), _COLUMNS)
    if not coarse or width < 2 * WIDTH:
        return {}
    return {
        heat.quantity: _level(heat)
        for heat in heats(report, rows, width)
        if heat.columns.count > coarse.get(heat.quantity, math.inf)
    }


def _level(heat: Heat) -> Json:
    columns = range(heat.columns.count)
    ends = heat.columns.ends
    return {
        "edges": edges(heat),
        "steps": positions(heat.telling),
        "first": positions(first for first, _ in ends),
        "last": positions(last for _, last in ends),
        "z": [single_numbers(logarithm(line.get(at)) for at in columns) for line in heat.cells],
        "states": [
            positions(_state(line[at]) if at in line else None for at in columns)
            for line in heat.cells
        ],
    }


def _state(cell: Cell) -> int | None:
    """Return the state of a measured cell; None of one with a logarithm."""
    if cell is None:
        return MISSING
    if not math.isfinite(cell):
        return BROKEN
    return None if cell else ZERO


def edges(heat: Heat) -> Json:
    """Return where columns begin, and the end of the last."""
    columns = heat.columns
    return numbers([step - 0.5 for step in (*columns.first_steps, columns.steps[-1] + 1)])
