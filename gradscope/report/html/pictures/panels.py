"""Panels one above the other, over one axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.report.html.columns import Json

_GAP = 0.18
"""Between panels, in the heights of panels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of a figure: what is drawn, and its vertical axis."""

    height: float
    traces: Sequence[Mapping[str, Json]]
    axis: Mapping[str, Json]
    band: tuple[float, float] | None = None
    """Of the vertical axis, shaded."""


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
    for place, panel in enumerate(panels, start=1):
        axis = _axis(place)
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


def _axis(place: int) -> str:
    return f"y{place if place > 1 else ''}"
