"""How the ratios of gradient norms spread over the parameters."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gradscope.comparison.side import Side
from gradscope.phrasing import counted
from gradscope.report.html.charts.axes import bin_bars, log_axis, log_band, range_around
from gradscope.report.html.charts.compared_marks import PairRow, by_change, color_of, title_of
from gradscope.report.html.columns import Json
from gradscope.report.html.page import Chart

_BINS = 41
_MARGIN = 1 + 1e-9
"""By which the outermost bins reach beyond the outermost ratios."""

Trace = dict[str, Json]


def compared_spread(
    rows: Sequence[PairRow], sides: tuple[Side, Side], tolerance: float
) -> Chart | None:
    """Return the picture; None where fewer than two ratios differ."""
    known = [row for row in rows if _is_drawn(row.pair.ratio)]
    ratios = [row.pair.ratio or 0.0 for row in known]
    if len(set(ratios)) < 2:
        return None
    edges = bin_edges(ratios)
    base, other = sides
    band = 1 / (1 + tolerance), 1 + tolerance
    drawn = [math.log10(edge) for edge in (edges[0], edges[-1])]
    layout: dict[str, Json] = {
        "barmode": "overlay",
        "bargap": 0,
        "showlegend": True,
        "legend": {"traceorder": "normal"},
        "xaxis": {
            **log_axis(f"gradient norm, {other.letter} over {base.letter}", edges),
            "range": range_around(drawn, 0.0, log_band(band)),
        },
        "yaxis": {"title": {"text": "parameters"}, "rangemode": "tozero"},
        "shapes": [_band(band)],
    }
    return Chart(
        name="compared-spread",
        kind="plot",
        title="Distribution of the ratios",
        caption=" ".join(_caption(rows, len(known))),
        content={"figure": {"data": list(_bars(known, edges)), "layout": layout}},
        is_wide=False,
        height=520,
    )


def bin_edges(ratios: Sequence[float]) -> list[float]:
    """Return the ends of bins that are equally wide on a logarithmic axis, and hold all ratios."""
    low, high = math.log10(min(ratios) / _MARGIN), math.log10(max(ratios) * _MARGIN)
    return [10 ** (low + (high - low) * at / _BINS) for at in range(_BINS + 1)]


def _is_drawn(ratio: float | None) -> bool:
    return ratio is not None and 0 < ratio < math.inf


def _caption(rows: Sequence[PairRow], known: int) -> Iterator[str]:
    yield f"Of {counted(known, 'parameter')}; the band is the tolerance."
    if known < len(rows):
        yield f"{len(rows) - known:,} have no finite, positive ratio."


def _bars(rows: Sequence[PairRow], edges: Sequence[float]) -> Iterator[Trace]:
    bins = list(pairwise(edges))
    below = [0] * len(bins)
    for change, found in by_change(rows):
        counts = [0] * len(bins)
        for row in found:
            at = bisect_right(edges, row.pair.ratio or 0.0, hi=len(bins)) - 1
            counts[at] += 1
        yield bin_bars(bins, counts, below, title_of(change), color_of(change))
        below = [one + count for one, count in zip(below, counts, strict=True)]


def _band(ends: tuple[float, float]) -> Json:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "y domain",
        "x0": ends[0],
        "x1": ends[1],
        "y0": 0,
        "y1": 1,
        "fillcolor": "@accent-soft",
        "line": {"width": 0},
        "layer": "below",
    }
