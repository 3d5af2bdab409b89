"""Numbers as colours and cells: for colour-blind readers, on paper and on a dark screen."""

import math
from collections.abc import Iterable, Mapping, Sequence

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.report.html.charts.heat import Cell
from gradscope.report.html.columns import Json, numbers

SEQUENTIAL = (
    "#2f3f7e", "#33638d", "#2a788e", "#238a8d", "#1fa187",
    "#3fbc73", "#74d055", "#b8de29", "#fde725",
)  # fmt: skip
"""Colours from low to high: viridis from its blue. Both ends are visible on white and black, and no
colour means broken, zero or missing."""

DIVERGING = (
    "#8c510a", "#bf812d", "#dfc27d", "#f6e8c3", "#f5f5f5",
    "#c7eae5", "#80cdc1", "#35978f", "#01665e",
)  # fmt: skip
"""Colours from smaller through unchanged to larger: BrBG of ColorBrewer."""

_NARROWEST = 1.0
"""Minimum range of a scale in powers of ten: a narrower one would show differences that mean
nothing.
"""

_SHADES = 96

_HIGHEST = 308.25
"""Highest power of ten of a number."""

_BRIGHT = 140
"""Brightness, of 255, above which dark text is easier to read."""

Trace = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColourScale:
    """A logarithmic scale of colours."""

    stops: tuple[str, ...]
    low: float
    """log10 of the number that has the first colour."""
    high: float
    is_of_numbers: bool = True
    """Whether any number was to be coloured."""

    @classmethod
    def over(cls, values: Iterable[float | None]) -> "ColourScale":
        """Return a scale over the numbers that a logarithmic axis can show."""
        levels = _levels(values)
        low, high = min(levels, default=0.0), max(levels, default=0.0)
        missing = max(0.0, _NARROWEST - (high - low)) / 2
        high = min(high + missing, _HIGHEST)
        return cls(stops=SEQUENTIAL, low=low - missing, high=high, is_of_numbers=bool(levels))

    @classmethod
    def around_one(cls, values: Iterable[float | None]) -> "ColourScale":
        """Return a scale whose middle is 1, over numbers as far from it as any of some."""
        farthest = min(max([_NARROWEST, *map(abs, _levels(values))]), _HIGHEST)
        return cls(stops=DIVERGING, low=-farthest, high=farthest)

    def colour(self, value: float) -> str:
        """Return the colour of a positive, finite number."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        # A byte can index these colours, and they are more than eyes can distinguish.
        shade = round(min(max(share, 0.0), 1.0) * _SHADES) / _SHADES
        at = shade * (len(self.stops) - 1)
        start = min(int(at), len(self.stops) - 2)
        return _mixed(self.stops[start], self.stops[start + 1], at - start)

    def letters(self, value: float) -> str:
        """Return the colour of letters that can be read on the colour of a number."""
        red, green, blue = _parts(self.colour(value))
        # The weights of perceived brightness, from ITU-R BT.601.
        brightness = 0.299 * red + 0.587 * green + 0.114 * blue
        return "#ffffff" if brightness < _BRIGHT else "#10161d"

    def bar(self, title: str) -> dict[str, Json]:
        """Return plotly's marker of a trace without marks, which draws the colour bar."""
        ticks = _ticks(self.low, self.high)
        return {
            "color": [self.low, self.high],
            "cmin": self.low,
            "cmax": self.high,
            "colorscale": [
                [position / (len(self.stops) - 1), stop] for position, stop in enumerate(self.stops)
            ],
            "showscale": self.is_of_numbers,
            "colorbar": {
                "title": {"text": title, "side": "right"},
                "tickvals": ticks,
                "ticktext": [_tick_text(tick) for tick in ticks],
                "thickness": 14,
                "outlinewidth": 0,
            },
        }


def _levels(values: Iterable[float | None]) -> list[float]:
    return [math.log10(value) for value in values if value and math.isfinite(value)]


def _ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten within a range if there are some, otherwise its ends."""
    # Rounding may have moved an end just past a power.
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last <= first:
        return [low, high]
    step = max(1, math.ceil((last - first) / 8))
    return [float(power) for power in range(first, last + 1, step)]


def _tick_text(tick: float) -> str:
    is_power = tick == round(tick) and abs(tick) > _SPELT
    return f"10<sup>{tick:.0f}</sup>" if is_power else short(10.0**tick)


_SPELT = 3
"""Highest power of ten that is written out."""


def _mixed(one: str, other: str, share: float) -> str:
    parts = zip(_parts(one), _parts(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


_DECADES = 14
"""Maximum range of the colours in decades."""


def logarithm(cell: Cell) -> float | None:
    """Return the log10 of a number; None if it has no position on such a scale."""
    return math.log10(cell) if cell is not None and 0 < cell < math.inf else None


def colour_axis(cells: Sequence[Cell], name: str) -> dict[str, Json]:
    """Return the ends of the colours, and the colour bar."""
    low, high = colour_ends(cells)
    beyond = _beyond(cells, low, high)
    room = (high - low) / 20
    ticks = {
        tick: text
        for tick, text in _decade_ticks(low, high).items()
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


def _decade_ticks(low: float, high: float) -> dict[float, str]:
    step = max(math.ceil((high - low) / 6), 1)
    powers = range(math.ceil(low), math.floor(high) + 1, step)
    if len(powers) > 1:
        return {float(power): f"10<sup>{power}</sup>" for power in powers}
    return {end: _letters(end) for end in (low, high)}


def _beyond(cells: Sequence[Cell], low: float, high: float) -> dict[float, str]:
    """Return the labels of ends that numbers exceed; these have the colour of the end."""
    powers = [power for power in map(logarithm, cells) if power is not None]
    smaller, larger = any(power < low for power in powers), any(power > high for power in powers)
    below = {low: f"≤ {_letters(low)}"} if smaller else {}
    return below | ({high: f"≥ {_letters(high)}"} if larger else {})


def _letters(power: float) -> str:
    return short(10 ** min(power, _HIGHEST))


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
