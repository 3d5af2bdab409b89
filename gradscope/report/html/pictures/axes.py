"""Axes that several pictures have."""

from gradscope.report.html.columns import Json

Axis = dict[str, Json]


def log_axis(title: str) -> Axis:
    """Return a logarithmic axis, its numbers written out."""
    return {"type": "log", "title": {"text": title}, "tickformat": ".3~g"}


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
