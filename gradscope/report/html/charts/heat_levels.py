"""The finer columns of the heatmap of a long run, which the page shows when it is zoomed in.

At first a column of the heatmap covers many steps. Beside these columns the page has finer ones, as
many as there is room for; `assets/heat_levels.js` puts those in view together.
"""

import math
from collections.abc import Sequence

from gradscope.report.html.charts.colours import logarithm
from gradscope.report.html.charts.heat import WIDTH, Cell, Heat, HeatRow
from gradscope.report.html.columns import Json, numbers, positions, single_numbers

_CELLS, _COLUMNS = 100_000, 8_000
"""Maximum number of cells of a level, and of its columns: half a megabyte of a page."""
ZERO, BROKEN, MISSING = range(3)
"""States of cells without a logarithm, as the page knows them."""


def width_of(rows: Sequence[HeatRow]) -> int:
    """Return the largest number of columns that there is room for, with those of finer levels."""
    width = min(_CELLS // max(len(rows), 1), _COLUMNS)
    return WIDTH if width < 2 * WIDTH else width


def finer_levels(finest: Sequence[Heat], found: Sequence[Heat]) -> dict[str, Json]:
    """Return the finer columns by quantity; none where the heatmap has a column for each step.

    Args:
        finest: The quantities in as many columns as there is room for.
        found: What the heatmap shows at first of each.
    """
    return {
        heat.quantity: _level(heat)
        for heat, shown in zip(finest, found, strict=True)
        if len(heat.columns) > len(shown.columns)
    }


def _level(heat: Heat) -> Json:
    columns = range(len(heat.columns))
    return {
        "edges": edges(heat),
        "steps": positions(one.telling for one in heat.columns),
        "first": positions(one.first for one in heat.columns),
        "last": positions(one.last for one in heat.columns),
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
    starts = [one.start for one in heat.columns]
    return numbers([step - 0.5 for step in (*starts, heat.last_step + 1)])
