"""Bars of a histogram whose bins need not be equally wide."""

from collections.abc import Sequence

from gradscope.report.html.columns import Json, numbers


def bin_bars(
    bins: Sequence[tuple[float, float]],
    counts: Sequence[int],
    below: Sequence[int],
    name: str,
    color: str,
) -> dict[str, Json]:
    """Return the bars of some counts, for a layout with `barmode` overlay.

    Plotly stacks bars by places that it takes for equal where they are near on a linear axis, as
    the small ones of a logarithmic axis all are: what lies below a bar is told to it instead.

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
        "x": numbers((low + high) / 2 for low, high in bins),
        "width": numbers(high - low for low, high in bins),
        "y": numbers(counts),
        "base": numbers(below),
        "customdata": numbers(counts),
        "text": [f"{low:.4g}…{high:.4g}" for low, high in bins],
        "textposition": "none",
        "marker": {"color": color, "line": {"color": "@paper", "width": 1}},
        "hovertemplate": "%{text}<br>%{customdata} %{fullData.name}<extra></extra>",
    }
