"""Axes that several pictures have."""

import math
from collections.abc import Iterable

from gradscope.report.html.columns import Json

Axis = dict[str, Json]

_ONE = 0.8
"""Decades that with a margin are a whole one."""
_WRITTEN = 5
"""Decades up to which numbers are shorter than powers."""
_TICKS = 3
"""A decade: 1, 2 and 5, where there is one decade or more."""
_NEAR = 3.0
"""Times as far from the centre as what is drawn is, within which the ends of a band are shown."""
_MARGIN = 0.08


def log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis; of a few decades its numbers are written out.

    Args:
        title: Of the axis.
        values: What is drawn along it; what it cannot show is left out.
    """
    logarithms = [math.log10(value) for value in values if 0 < value < math.inf]
    decades = max(logarithms, default=0.0) - min(logarithms, default=0.0)
    written: Axis = {"tickformat": ".6~g"} if decades <= _WRITTEN else {"exponentformat": "power"}
    axis: Axis = {"type": "log", "title": {"text": title}, **written}
    # Left alone, plotly writes every digit of one to three decades, one over the other.
    if not _ONE <= decades <= _TICKS:
        return axis
    return {**axis, "nticks": max(_TICKS, int(_TICKS * decades))}


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


def range_around(values: Iterable[float], centre: float, band: tuple[float, float]) -> list[Json]:
    """Return the ends of an axis around what is drawn, the centre, and the band if it is near.

    A band that is far wider than what is drawn would leave nothing of it to be seen.

    Args:
        values: On the axis, as their logarithms where it is logarithmic.
        centre: Where nothing differs.
        band: Within the tolerance.
    """
    known = [*values, centre]
    reach = max(abs(value - centre) for value in known)
    near = [end for end in band if abs(end - centre) <= _NEAR * reach]
    low, high = min([*known, *near]), max([*known, *near])
    margin = _MARGIN * (high - low) or abs(band[0] - centre)
    return [low - margin, high + margin]


def log_band(band: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms of a band's ends, by which plotly knows a range."""
    return math.log10(band[0]), math.log10(band[1])
