"""Loss and gradient norm of all sides over the steps, on one axis."""

import math
from collections.abc import Iterator, Sequence

from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import ComparedCurve, Parting, SideCurve
from gradscope.comparison.side import Side
from gradscope.phrasing import short
from gradscope.report.documents.comparison_phrasing import loss_notes, parting_text
from gradscope.report.html.charts.axes import (
    Axis,
    Panel,
    lettered,
    log_axis,
    stacked,
    step_axis,
    strip_axis,
)
from gradscope.report.html.charts.curves import drawn_points
from gradscope.report.html.columns import Json, numbers, positions
from gradscope.report.html.page import Chart

_COLORS = 8
_NAME = 40
"""Maximum length of a side's name in the legend, in characters."""
_WIDE = 10.0
"""Ratio of the largest to the smallest number above which an axis starts as logarithmic."""

_NARROW = 0.005
"""Relative distance from the middle of a curve that an axis covers at least."""
_MARGIN = 0.012
"""Margin on both sides, as a share of an axis."""
_TOLD = 4
"""Maximum number of sides whose first difference is in the caption."""
_MARKED = 60
"""Number of points up to which each gets a mark."""

Trace = dict[str, Json]


def compared_curves(comparison: Comparison) -> Chart | None:
    """Return the chart; None without curves of two sides."""
    if not comparison.curves:
        return None
    reported: set[int] = set()
    panels = [
        panel for curve in comparison.curves for panel in _panels(curve, comparison.sides, reported)
    ]
    data, layout = stacked(panels, "step")
    steps = [
        step for curve in comparison.curves for one in curve.sides if one for step in one.steps
    ]
    if steps:
        margin = max((max(steps) - min(steps)) * _MARGIN, 0.5)
        axis = layout["xaxis"]
        assert isinstance(axis, dict)
        layout["xaxis"] = {**axis, **step_axis(min(steps), max(steps), margin)}
    may_be_log = all(_may_be_log(curve) for curve in comparison.curves)
    return Chart(
        name="compared-curves",
        kind="plot",
        title="Curves",
        caption=" ".join(_caption(comparison)),
        content={
            "figure": {"data": data, "layout": layout},
            **({"switches": [_scales(layout)]} if may_be_log else {}),
        },
        height=140 + round(100 * sum(panel.height for panel in panels)),
    )


def _caption(comparison: Comparison) -> Iterator[str]:
    if any(curve.kind == "loss" for curve in comparison.curves):
        yield from (f"{note[0].upper()}{note[1:]}." for note in loss_notes(comparison))
    for curve in comparison.curves:
        for position, side in enumerate(comparison.sides[: _TOLD + 1]):
            text = parting_text(curve, position, comparison)
            if text and curve.kind == "loss":
                of = f" of {curve.optimizer}" if curve.optimizer else ""
                verb = " is" if text.startswith("equal") else ""
                yield f"The loss{of} of {side.letter}{verb} {text}."
    if any(_beyond(parting) is not None for one in comparison.curves for parting in one.partings):
        yield "A diamond marks where a side first exceeds the tolerance."


def _panels(curve: ComparedCurve, sides: Sequence[Side], told: set[int]) -> Iterator[Panel]:
    """Yield the panel of a curve, and a strip for its non-finite values.

    Args:
        curve: Of all sides.
        sides: The base first.
        told: The sides that the legend has; grows.
    """
    known = [(at, one) for at, one in enumerate(curve.sides) if one is not None]
    broken = [_strip(one, at) for at, one in known if not all(map(math.isfinite, one.values))]
    if broken:
        yield Panel(height=0.3, traces=broken, axis=strip_axis("NaN, inf"))
    lines = [_line(one, sides[at], at, in_legend=at not in told) for at, one in known]
    told.update(at for at, _ in known)
    partings = [_parting(curve, at) for at, _ in known if _beyond(curve.partings[at]) is not None]
    yield Panel(height=2.0, traces=[*lines, *partings], axis=_axis(curve))


def _beyond(parting: Parting | None) -> int | None:
    return None if parting is None else parting.first_beyond


def _axis(curve: ComparedCurve) -> Axis:
    title = lettered(" ".join(filter(None, [curve.kind, curve.optimizer])), _NAME)
    values = _finite_values(curve)
    if _may_be_log(curve) and max(values) > _WIDE * min(values):
        return log_axis(title, values)
    axis: Axis = {"type": "linear", "title": {"text": title}}
    if values and (middle := (min(values) + max(values)) / 2):
        # An axis around rounding errors would make them look large.
        ends = [middle * (1 - _NARROW), middle * (1 + _NARROW)]
        return {**axis, "autorangeoptions": {"include": ends}}
    return axis


def _finite_values(curve: ComparedCurve) -> list[float]:
    known = [one.values for one in curve.sides if one is not None]
    return [value for values in known for value in values if math.isfinite(value)]


def _may_be_log(curve: ComparedCurve) -> bool:
    return min(_finite_values(curve), default=0.0) > 0


def _scales(layout: dict[str, Json]) -> Json:
    """Return the switch between the default axes and axes of one kind."""
    axes = [
        name
        for name, axis in layout.items()
        if name.startswith("yaxis") and isinstance(axis, dict) and "type" in axis
    ]
    choices: list[Json] = [{"label": "auto"}]
    choices += [
        {"label": kind, "layout": {axis: {"type": kind} for axis in axes}}
        for kind in ("linear", "log")
    ]
    return {"label": "axes", "choices": choices}


def _color(position: int) -> str:
    return f"@series-{position % _COLORS}"


def _line(curve: SideCurve, side: Side, position: int, *, in_legend: bool) -> Trace:
    points = drawn_points(tuple(zip(curve.steps, curve.values, strict=True)))
    steps = [step for step, _ in points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= _MARKED else "lines",
        "name": f"{side.letter}  {lettered(side.name, _NAME)}",
        "legendgroup": side.letter,
        "showlegend": in_legend,
        "x": numbers(steps),
        "y": numbers(value if math.isfinite(value) else None for _, value in points),
        "line": {"color": _color(position), "width": 1.6},
        "marker": {"color": _color(position), "size": 4},
        "hovertemplate": f"step %{{x:count}}<br>%{{y:exact}}<extra>{side.letter}</extra>",
        "meta": {"links": {"step": positions(steps)}},
    }


def _strip(curve: SideCurve, position: int) -> Trace:
    """Return the steps of a side in which its number is not finite."""
    points = [
        point
        for point in drawn_points(tuple(zip(curve.steps, curve.values, strict=True)))
        if not math.isfinite(point[1])
    ]
    steps = [step for step, _ in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": numbers(steps),
        "y": numbers([0.5] * len(steps)),
        "marker": {
            "color": _color(position),
            # Many crosses beside each other would run together.
            "symbol": "x" if len(points) <= _MARKED else "line-ns-open",
            "size": 8,
        },
        "text": ["NaN" if math.isnan(value) else short(value) for _, value in points],
        "hovertemplate": "step %{x:count}<br>%{text}<extra></extra>",
        "meta": {"links": {"step": positions(steps)}},
    }


def _parting(curve: ComparedCurve, position: int) -> Trace:
    """Return the mark at which a side parts from the base."""
    side, step = curve.sides[position], _beyond(curve.partings[position])
    known = {} if side is None else dict(zip(side.steps, side.values, strict=True))
    value = known.get(step) if step is not None else None
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": numbers([step]),
        "y": numbers([value if value is not None and math.isfinite(value) else None]),
        "marker": {
            "color": _color(position),
            "symbol": "diamond",
            "size": 12,
            "line": {"color": "@ink", "width": 1.5},
        },
        "hovertemplate": "diverges at step %{x:count}<extra></extra>",
        "meta": {"links": {"step": positions([step])}},
    }
