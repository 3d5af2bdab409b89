"""Parts of charts with a coloured cell for each row and column."""

import math
from collections.abc import Iterable, Mapping, Sequence

from gradscope.report.html.columns import Json, numbers

Trace = Mapping[str, Json]


def colour_scale(stops: Sequence[str]) -> Json:
    """Return colours from the least number to the greatest as plotly takes them."""
    return [[position / (len(stops) - 1), stop] for position, stop in enumerate(stops)]


def row_axis(labels: Sequence[str]) -> Trace:
    """Return the vertical axis of rows, the first at the top."""
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(labels),
        "range": [len(labels) - 0.5, -0.5],
        "showgrid": False,
        "ticks": "",
        "tickfont": {"size": 11},
    }


def state_trace(
    base: Trace, name: str, cells: Iterable[Iterable[bool]], color: str, meta: Trace, hover: str
) -> Trace:
    """Return the trace of the cells in a state without a number, in a colour of its own.

    Args:
        base: What the traces of a chart have in common.
        name: Of the trace.
        cells: Whether each cell is in the state, by row.
        color: Of the theme.
        meta: What the marks stand for.
        hover: Text of a mark.
    """
    return {
        **base,
        "name": name,
        "z": [numbers(1 if holds else None for holds in row) for row in cells],
        "meta": {**meta, "under": True},
        "colorscale": [[0, color], [1, color]],
        "showscale": False,
        "showlegend": True,
        "hovertemplate": f"%{{y}}<br>{hover}<extra></extra>",
    }


def switch(names: Sequence[str], owners: Sequence[int], *, before: int = 0) -> Trace:
    """Return buttons that show the traces of one quantity.

    Args:
        names: Of the quantities.
        owners: By trace: which quantity it shows.
        before: Number of traces before these that are always shown.
    """
    # None leaves a trace as it is.
    always: list[Json] = [None] * before
    return {
        "label": "colour",
        "choices": [
            {
                "label": name,
                "data": [*always, *({"visible": owner == position} for owner in owners)],
            }
            for position, name in enumerate(names)
        ],
    }


def finite(number: float | None) -> float | None:
    """Return a number that an axis can show; None for others."""
    return number if number is not None and math.isfinite(number) else None
