"""Magnitudes of each gradient's elements, next to the ranges of low precision."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.report.html.charts.axes import row_labels
from gradscope.report.html.charts.colours import row_axis
from gradscope.report.html.columns import Json, ModuleIndices, positions
from gradscope.report.html.page import Chart

MOST_ROWS = 200
_ROW, _LOWEST, _HIGHEST, _AROUND = 14, 160, 520, 110
"""Heights in CSS pixels: of a row, minimum and maximum of all rows, and around them."""

_Anchor = Literal["left", "right"]
_EDGES: tuple[tuple[int, str, _Anchor], ...] = (
    (-24, "0 in float16", "right"),
    (-14, "full precision in float16", "left"),
    (16, "infinite in float16", "left"),
)
"""Powers of two at which half precision underflows, loses digits and overflows; the text for one
side, and the end at which it stands at the edge.
"""
_DECADES = 3
"""Number of powers of ten between the labels of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Octaves:
    """The magnitudes of a parameter's gradient: share of a sample in each octave."""

    row: ParameterRow
    first: int
    """Lowest power of two."""
    shares: tuple[float, ...]

    @property
    def last(self) -> int:
        """The highest power of two."""
        return self.first + len(self.shares) - 1


def magnitudes(report: Report) -> Chart | None:
    """Return the chart; None if no gradient was sampled."""
    rows = [found for row in report.parameters if (found := _octaves(row)) is not None]
    if not rows:
        return None
    drawn = _drawn(rows)
    height = min(max(_ROW * len(drawn), _LOWEST), _HIGHEST)
    return Chart(
        name="magnitudes",
        kind="plot",
        title="Magnitudes of the gradients' elements",
        caption=" ".join(_caption(rows, drawn)),
        content={"figure": {"data": [_heat(drawn, report)], "layout": _layout(drawn)}},
        height=height + _AROUND,
    )


def _drawn(rows: Sequence[Octaves]) -> Sequence[Octaves]:
    """Return all rows; of too many, those of matrices, or some of these."""
    if len(rows) <= MOST_ROWS:
        return rows
    # Biases and the weights of normalisations have few elements.
    matrices = [one for one in rows if len(one.row.shape) > 1] or rows
    return matrices[:: math.ceil(len(matrices) / MOST_ROWS)]


def _octaves(row: ParameterRow) -> Octaves | None:
    counts = () if row.grad is None else row.grad.magnitudes or ()
    first = None if row.grad is None else row.grad.lowest_exponent
    total = sum(counts)
    if first is None or not total:
        return None
    return Octaves(
        row=row,
        first=first,
        shares=tuple(count / total for count in counts),
    )


def _heat(rows: Sequence[Octaves], report: Report) -> Json:
    first, last = _ends(rows)
    modules = ModuleIndices(report)
    return {
        "type": "heatmap",
        "x": [octave + 0.5 for octave in range(first, last + 1)],
        "y": row_labels([one.row.name for one in rows]),
        "z": [[_share(one, octave) for octave in range(first, last + 1)] for one in rows],
        "zmin": 0,
        # The scale starts at the background colour: small shares should be faint.
        "colorscale": [[0, "@accent-soft"], [0.5, "@accent"], [1, "@ink"]],
        "colorbar": {
            "title": {"text": "share of the elements", "side": "right"},
            "tickformat": ".0%",
            "thickness": 14,
            "outlinewidth": 0,
        },
        "hovertemplate": "<b>%{y}</b><br>%{text}<br>%{z:share} of a sample<extra></extra>",
        "hoverongaps": False,
        "meta": {
            "columns": [_octave_text(octave) for octave in range(first, last + 1)],
            "rows": {
                "module": positions(modules.each(one.row.module for one in rows)),
                "parameter": positions(one.row.index for one in rows),
            },
        },
    }


def _ends(rows: Sequence[Octaves]) -> tuple[int, int]:
    return min(one.first for one in rows), max(one.last for one in rows)


def _share(one: Octaves, octave: int) -> float | None:
    """Return the share in an octave, None if it is empty."""
    at = octave - one.first
    # A sample of a thousand supports less than four digits.
    return round(one.shares[at], 4) or None if 0 <= at < len(one.shares) else None


def _octave_text(octave: int) -> str:
    return f"{short(2.0**octave)} to {short(2.0 ** (octave + 1))}"


def _layout(rows: Sequence[Octaves]) -> dict[str, Json]:
    first, last = _ends(rows)
    step = math.log2(10.0**_DECADES)
    powers = range(math.ceil(first / step), math.floor((last + 1) / step) + 1)
    labels = row_labels([one.row.name for one in rows])
    edges = [edge for edge in _EDGES if first - 2 <= edge[0] <= last + 3]
    return {
        "margin": {"l": 60, "r": 16, "t": 30, "b": 44},
        "plot_bgcolor": "@panel",
        "xaxis": {
            "tickvals": [power * step for power in powers],
            "ticktext": [f"10<sup>{power * _DECADES}</sup>" for power in powers],
            "title": {"text": "magnitude of an element"},
            "zeroline": False,
            "showgrid": False,
        },
        "yaxis": row_axis(labels),
        "shapes": [
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "@warning", "width": 1.5, "dash": "dot"},
            }
            for at, _, _ in edges
        ],
        "annotations": [
            {
                "name": "wide",
                "x": at,
                "yref": "paper",
                "y": 1,
                "xanchor": anchor,
                "yanchor": "bottom",
                "text": text,
                "showarrow": False,
                "font": {"color": "@warning", "size": 11},
            }
            for at, text, anchor in edges
        ],
    }


def _caption(rows: Sequence[Octaves], drawn: Sequence[Octaves]) -> Iterator[str]:
    yield (
        "A row is a parameter; colour shows the share of its elements between two powers of two. "
        "Between the two lines float16 has fewer digits; below that, values underflow to 0."
    )
    if len(drawn) < len(rows):
        yield f"{len(drawn):,} of {len(rows):,} parameters are drawn, evenly spaced."
