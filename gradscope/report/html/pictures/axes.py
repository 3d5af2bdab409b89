"""Axes that several pictures have."""

import math
from collections.abc import Iterable

from gradscope.report.html.columns import Json

Axis = dict[str, Json]

_TICKS = 3
"""A decade: 1, 2 and 5, where there is one decade or more."""


def log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis, its numbers written out.

    Args:
        title: Of the axis.
        values: What is drawn along it; what it cannot show is left out.
    """
    axis: Axis = {"type": "log", "title": {"text": title}, "tickformat": ".3~g"}
    logarithms = [math.log10(value) for value in values if 0 < value < math.inf]
    decades = max(logarithms, default=0.0) - min(logarithms, default=0.0)
    # Left alone, plotly writes every digit of one to three decades, one over the other.
    return {**axis, "nticks": int(_TICKS * decades)} if 1 <= decades <= _TICKS else axis


def share_axis(title: str = "") -> Axis:
    """Return an axis from 0 to 100 %."""
    return {"title": {"text": title}, "range": [0, 1], "tickformat": ".0%"}


def strip_axis(name: str) -> Axis:
    """Return the axis of a strip, for what a logarithmic one cannot show: marks lie at 0.5."""
    return {
        "range": [0, 1],
        "fixedrange": True,
        "tickvals": [0.5],
        "ticktext": [name],
        "showgrid": False,
        "zeroline": False,
    }
