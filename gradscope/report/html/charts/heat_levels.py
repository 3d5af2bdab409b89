"""The finer columns of the heatmap of a long run, which the page shows when it is zoomed in.

At first a column of the heatmap covers many steps. Beside these columns the page has finer ones, as
many as there is room for; `assets/heat_levels.js` puts those in view together.
"""

import math
from collections.abc import Mapping, Sequence

from gradscope.report.html.charts.colours import logarithm
from gradscope.report.html.charts.heat import WIDTH, Cell, Heat, HeatRow
from gradscope.report.html.columns import Json, numbers, positions

_CELLS, _COLUMNS = 300_000, 8_000
"""Maximum number of cells of a level, and of its columns: 0.8 megabytes of a page."""
_ROOM = 1_900_000
"""Bytes of a page for the heatmap, below which levels are added: other charts take the rest."""
_SHOWN, _FINER = 16 / 3, 8 / 3
"""Bytes of a cell that is shown at first, and of one of a finer level."""
ZERO, BROKEN, MISSING = range(3)
"""States of cells without a logarithm, as the page knows them."""
_STATES = 3
"""Number of states: larger codes of cells are logarithms."""
_FINEST = 2**15 - 1 - _STATES
"""Largest logarithm in two bytes: steps of 0.1 % of a norm where a row spans 14 powers of ten."""


def width_of(rows: Sequence[HeatRow]) -> int:
    """Return the largest number of columns that there is room for, with those of finer levels."""
    width = min(_CELLS // max(len(rows), 1), _COLUMNS)
    # Columns less than twice as fine are not worth their bytes.
    return WIDTH if width < 2 * WIDTH else width


def finer_levels(finest: Sequence[Heat], found: Sequence[Heat]) -> dict[str, Json]:
    """Return the finer columns by quantity, as long as there is room, the gradients first.

    There are none where the heatmap has a column for each step.

    Args:
        finest: The quantities in as many columns as there is room for.
        found: What the heatmap shows at first of each.
    """
    room = _ROOM - _SHOWN * sum(map(_size, found))
    levels: dict[str, Json] = {}
    for heat, shown in zip(finest, found, strict=True):
        taken = _FINER * _size(heat)
        if len(heat.columns) > len(shown.columns) and taken <= room:
            levels[heat.quantity] = _level(heat)
            room -= taken
    return levels


def _size(heat: Heat) -> int:
    return len(heat.cells) * len(heat.columns)


def _level(heat: Heat) -> Json:
    return {
        "edges": edges(heat),
        "steps": positions(one.telling for one in heat.columns),
        "first": positions(one.first for one in heat.columns),
        "last": positions(one.last for one in heat.columns),
        "rows": [_row(line, len(heat.columns)) for line in heat.cells],
    }


def _row(line: Mapping[int, Cell], columns: int) -> Json:
    """Return the cells of a row in two bytes each: a state, or a logarithm above the lowest."""
    logs = {at: log for at, cell in line.items() if (log := logarithm(cell)) is not None}
    low, high = min(logs.values(), default=0.0), max(logs.values(), default=0.0)
    size = (high - low) / _FINEST
    codes: list[int | None] = [None] * columns
    for at, cell in line.items():
        log = logs.get(at)
        codes[at] = _state(cell) if log is None else _STATES + _code(log - low, size)
    return {"low": low, "size": size, "codes": positions(codes)}


def _code(above: float, size: float) -> int:
    return round(above / size) if size else 0


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
