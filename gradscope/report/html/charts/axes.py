"""Axes that several charts share, panels above one axis, bars, and which marks are drawn."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from gradscope.frozen import dataclass
from gradscope.phrasing import printable, short
from gradscope.report.html.columns import Json, numbers
from gradscope.report.page import UNICODE

_GAP = 0.18
"""Gap between panels, as a share of a panel's height."""

LONGEST = 90
"""Maximum length of a name in characters; longer names lose their middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of a figure: its traces, and its vertical axis."""

    height: float
    traces: Sequence[Mapping[str, Json]]
    axis: Mapping[str, Json]
    band: tuple[float, float] | None = None
    """Shaded range of the vertical axis."""


def stacked(panels: Sequence[Panel], title: str) -> tuple[list[Json], dict[str, Json]]:
    """Return the traces and the layout of panels, the topmost first.

    Args:
        panels: At least one.
        title: Of their common axis, that of steps.
    """
    whole = sum(panel.height for panel in panels) + _GAP * (len(panels) - 1)
    data: list[Json] = []
    layout: dict[str, Json] = {
        "showlegend": True,
        "meta": {"stepAxes": ["x"]},
        "xaxis": {"title": {"text": title}, "anchor": _axis(len(panels))},
    }
    bands: list[Json] = []
    top = whole
    for position, panel in enumerate(panels, start=1):
        axis = _axis(position)
        # Rounding may leave a share outside of 0 to 1, which plotly ignores.
        domain = [max((top - panel.height) / whole, 0.0), min(top / whole, 1.0)]
        layout[f"yaxis{axis[1:]}"] = {**panel.axis, "domain": domain, "anchor": "x"}
        data += [{**trace, "xaxis": "x", "yaxis": axis} for trace in panel.traces]
        if panel.band is not None:
            bands.append(_band(axis, panel.band))
        top -= panel.height + _GAP
    return data, {**layout, "shapes": bands} if bands else layout


def _band(axis: str, ends: tuple[float, float]) -> dict[str, Json]:
    low, high = ends
    return {
        "type": "rect",
        "xref": "x domain",
        "yref": axis,
        "x0": 0,
        "x1": 1,
        "y0": low,
        "y1": high,
        "fillcolor": "@accent-soft",
        "line": {"width": 0},
        "layer": "below",
    }


def _axis(position: int) -> str:
    # plotly numbers axes from the second on.
    return f"y{position if position > 1 else ''}"


Axis = dict[str, Json]

_ONE = 0.8
"""Range in decades that, with a margin, counts as a whole decade."""

_WRITTEN = 5
"""Range in decades up to which plain numbers are shorter than powers."""

_TICKS = 3
"""A decade: 1, 2 and 5, where there is one decade or more."""

_MARGIN = 0.08


def log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis; over few decades its numbers are written out.

    Args:
        title: Of the axis.
        values: What is drawn along it; what it cannot show is left out.
    """
    logarithms = [math.log10(value) for value in values if 0 < value < math.inf]
    decades = max(logarithms, default=0.0) - min(logarithms, default=0.0)
    written: Axis = {"tickformat": ".6~g"} if decades <= _WRITTEN else {"exponentformat": "power"}
    axis: Axis = {"type": "log", "title": {"text": title}, **written}
    # By default, plotly labels every digit of one to three decades, and the labels overlap.
    if not _ONE <= decades <= _TICKS:
        return axis
    return {**axis, "nticks": max(_TICKS, int(_TICKS * decades))}


def share_axis(title: str = "") -> Axis:
    """Return an axis from 0 to 100 %."""
    return {"title": {"text": title}, "range": [0, 1], "tickformat": ".0%"}


def strip_axis(name: str) -> Axis:
    """Return the axis of a strip for values without a logarithm; marks are at 0.5."""
    return {
        "range": [0, 1],
        "fixedrange": True,
        "tickvals": [0.5],
        "ticktext": [name],
        "showgrid": False,
        "zeroline": False,
    }


def range_around(values: Iterable[float], centre: float, band: tuple[float, float]) -> list[Json]:
    """Return the ends of an axis around what is drawn, the centre and the band.

    On an axis inside the band, differences within the tolerance would look large.

    Args:
        values: On the axis, as their logarithms where it is logarithmic.
        centre: Where nothing differs.
        band: Within the tolerance.
    """
    known = [*values, centre]
    low, high = min(*known, *band), max(*known, *band)
    margin = _MARGIN * (high - low)
    return [low - margin, high + margin]


def log_band(band: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms of a band's ends, which plotly uses for a range."""
    return math.log10(band[0]), math.log10(band[1])


_EACH = 12
"""Number of steps up to which each has a tick; longer axes have as many as fit."""


def step_axis(first: int, last: int, margin: float) -> Mapping[str, Json]:
    """Return the settings of an axis from one step to another, with a margin on both sides."""
    ticks = {"dtick": 1} if last - first < _EACH else {}
    return {"range": [first - margin, last + margin], "tickformat": ",d", **ticks}


def bin_bars(
    bins: Sequence[tuple[float, float]],
    counts: Sequence[int],
    below: Sequence[int],
    name: str,
    color: str,
) -> dict[str, Json]:
    """Return the bars of some counts, for a layout with `barmode` overlay.

    Plotly stacks bars by positions that it takes for equal where they are near on a linear axis, as
    the small ones of a logarithmic axis all are. Each bar gets what lies below it instead.

    Args:
        bins: The ends of each.
        counts: How many lie in it.
        below: How many are drawn below these.
        name: What they are.
        color: Of the theme.
    """
    return {
        "type": "bar",
        "name": name,
        # Around a centre, plotly widens the bars that are narrow on a linear axis.
        "x": numbers(low for low, _ in bins),
        "offset": 0,
        "width": numbers(high - low for low, high in bins),
        "y": numbers(counts),
        "base": numbers(below),
        "customdata": numbers(counts),
        "text": [f"{short(low)}…{short(high)}" for low, high in bins],
        "textposition": "none",
        "marker": {"color": color, "line": {"color": "@paper", "width": 1}},
        "hovertemplate": "%{text}<br>%{customdata:count} %{fullData.name}<extra></extra>",
    }


MOST_MARKS = 1200
"""Number of marks up to which all are drawn."""

_BINS, _OTHERS = 150, 250

_GOLDEN = (5**0.5 - 1) / 2
"""Factor whose multiples are evenly spread between integers, without a period."""


def thinned(positions: Sequence[int], values: Sequence[Sequence[float]]) -> list[int]:
    """Return which marks to draw, ascending: all, or the least and the largest of each bin.

    Some of the others are drawn too: extremes alone would make patterns that are not there.

    Args:
        positions: Of each mark on its axis.
        values: What is drawn there, in each of several ways; numbers that can be compared.
    """
    if len(positions) <= MOST_MARKS:
        return list(range(len(positions)))
    first, last = min(positions), max(positions)
    bins: dict[int, list[int]] = {}
    for mark, position in enumerate(positions):
        bins.setdefault((position - first) * _BINS // (last - first + 1), []).append(mark)
    kept: set[int] = set()
    for marks in bins.values():
        for value in values:
            kept.add(min(marks, key=value.__getitem__))
            kept.add(max(marks, key=value.__getitem__))
    kept.update(at for at in range(len(positions)) if at * _GOLDEN % 1 < _OTHERS / len(positions))
    return sorted(kept)


def lettered(name: str, longest: int = LONGEST) -> str:
    """Return a name for plotly, without markup, on one line, and not too long."""
    return escape(shortened(printable(name), longest), quote=False)


def shortened(name: str, longest: int) -> str:
    """Return a name without its middle if it is too long; ends of paths say the most."""
    if len(name) <= longest:
        return name
    start = longest // 3
    return f"{name[:start]}…{name[len(name) - (longest - start - 1) :]}"


def hover(title: str, lines: Iterable[tuple[str, str | None]]) -> str:
    """Return the tooltip of a mark: its name, and its values by name."""
    reported = [f"<b>{lettered(title)}</b>"]
    reported += [f"{name}  {lettered(text)}" for name, text in lines if text]
    return "<br>".join(reported)


def number(value: float | None) -> str:
    """Return a number with three digits."""
    return UNICODE.dash if value is None else short(value)


_EXACT = 6
"""Significant digits where there is room."""


def exact(value: float | None) -> str:
    """Return a number with the digits of tooltips."""
    return UNICODE.dash if value is None else short(value, _EXACT)


_LONGEST = 34
"""Maximum length of a label in characters."""


def common_prefix(names: Sequence[str]) -> str:
    """Return the modules that all names begin with, as `model.layers.`; may be empty.

    Of each name, one part at least is left.
    """
    parts = [name.split(".") for name in names]
    shared: list[str] = []
    for column in zip(*(part[:-1] for part in parts), strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "".join(f"{part}." for part in shared)


def row_labels(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Return a label for each row, no two alike: rows of one label would be one."""
    labels: dict[str, None] = {}
    for name in names:
        label = lettered(name, longest)
        turn = 2
        while label in labels:
            label = f"{lettered(name, longest)} ({turn})"
            turn += 1
        labels[label] = None
    return list(labels)
