"""The colours of a heatmap over many powers of ten."""

import math
from collections.abc import Sequence

from gradscope.report.html.columns import Json
from gradscope.report.html.pictures.heat import Cell

_DECADES = 14
"""The most that the colours are spread over."""
_HIGHEST = 308.25
"""Ten to a higher power is no number."""


def logarithm(cell: Cell) -> float | None:
    """Return the power of ten that a number is; None of what has no place on such a scale."""
    return math.log10(cell) if cell is not None and 0 < cell < math.inf else None


def colour_axis(cells: Sequence[Cell], name: str) -> dict[str, Json]:
    """Return the ends of the colours, and the bar that tells them."""
    low, high = colour_ends(cells)
    beyond = _beyond(cells, low, high)
    room = (high - low) / 20
    ticks = {
        tick: text
        for tick, text in _ticks(low, high).items()
        if all(abs(tick - end) > room for end in beyond)
    } | beyond
    return {
        "zmin": low,
        "zmax": high,
        "colorbar": {
            "title": {"text": name, "side": "right"},
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
        },
    }


def _ticks(low: float, high: float) -> dict[float, str]:
    step = max(math.ceil((high - low) / 6), 1)
    powers = range(math.ceil(low), math.floor(high) + 1, step)
    if len(powers) > 1:
        return {float(power): f"10<sup>{power}</sup>" for power in powers}
    return {end: _letters(end) for end in (low, high)}


def _beyond(cells: Sequence[Cell], low: float, high: float) -> dict[float, str]:
    """Return the marks of ends that numbers lie beyond, which have the colour of the end."""
    powers = [power for power in map(logarithm, cells) if power is not None]
    smaller, larger = any(power < low for power in powers), any(power > high for power in powers)
    below = {low: f"≤ {_letters(low)}"} if smaller else {}
    return below | ({high: f"≥ {_letters(high)}"} if larger else {})


def _letters(power: float) -> str:
    return f"{10 ** min(power, _HIGHEST):.3g}"


def colour_ends(cells: Sequence[Cell]) -> tuple[float, float]:
    """Return the powers of ten at which colours end.

    They reach from the smallest to the largest number, but where these are too far apart: around
    the median then, so that an explosion leaves what was before it its colours.
    """
    powers = sorted(power for power in map(logarithm, cells) if power is not None)
    if not powers:
        return 0.0, 1.0
    low, high, middle = powers[0], powers[-1], powers[len(powers) // 2]
    if high - low > _DECADES:
        low = min(max(low, middle - _DECADES / 2), high - _DECADES)
        high = low + _DECADES
    return (low, high) if high > low else (low - 0.5, high + 0.5)
