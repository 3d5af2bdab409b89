"""Ratios of each parameter's gradient norm to the base's: along the model, and how they spread."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from gradscope.comparison.side import Side
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.report.html.charts.axes import (
    Axis,
    Panel,
    bin_bars,
    lettered,
    log_axis,
    log_band,
    range_around,
    stacked,
    strip_axis,
)
from gradscope.report.html.charts.comparison.marks import (
    PairRow,
    by_change,
    color_of,
    drawn,
    drawn_text,
    marks,
    title_of,
)
from gradscope.report.html.columns import Json, numbers
from gradscope.report.html.page import Chart

_PARTS = 18
"""Maximum number of parts of a model that are named below the axis."""

_NAME = 20
"""Maximum length of such a name in characters."""

_NUMBERLESS = ("reshaped", "gained", "missing", "new", "lost", "frozen")
"""Changes of a parameter whose norms have no ratio."""

Trace = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of the difference of a parameter from the base."""

    title: str
    of: Callable[[PairRow], float | None]
    is_log: bool
    height: float
    band: tuple[float, float] | None = None
    """Range within the tolerance."""
    least: tuple[float, float] | None = None
    """Range that the axis shows at least, where it has no band."""
    is_shown_equal: bool = True
    """Whether it is drawn even if everything is as in the base."""

    def tells(self, rows: Sequence[PairRow]) -> bool:
        """Return whether it is known, and not that all weights are as they were."""
        known = {value for row in rows if (value := self.of(row)) is not None}
        return bool(known) and (self.is_shown_equal or known != {1.0})

    def is_on_axis(self, value: float) -> bool:
        """Return whether the axis can show a number; other numbers have a strip of their own."""
        return math.isfinite(value) and (value > 0 or not self.is_log)


def measures(tolerance: float, least_cosine: float) -> tuple[Measure, ...]:
    """Return what may be drawn of parameters, from above."""
    return (
        Measure(
            title="gradient",
            of=lambda row: row.pair.ratio,
            is_log=True,
            height=2.0,
            band=(1 / (1 + tolerance), 1 + tolerance),
        ),
        Measure(
            title="weights",
            of=lambda row: row.pair.weight_ratio,
            is_log=True,
            height=1.3,
            least=(1 / (1 + tolerance), 1 + tolerance),
            is_shown_equal=False,
        ),
        Measure(
            title="cosine",
            of=lambda row: row.pair.cosine,
            is_log=False,
            height=1.3,
            band=(least_cosine, 1.0),
        ),
        Measure(
            title="difference",
            of=lambda row: row.pair.relative_difference,
            is_log=True,
            height=1.3,
        ),
    )


_TOLD = {
    "cosine": "Cosine between both gradients: 1 means the same direction.",
    "difference": "Norm of the difference, relative to the larger gradient.",
}


def compared_ratios(
    rows: Sequence[PairRow], sides: tuple[Side, Side], tolerance: float, least_cosine: float
) -> Chart | None:
    """Return the chart; None if nothing can be compared."""
    shown = drawn(rows)
    known = [one for one in measures(tolerance, least_cosine) if one.tells(shown)]
    panels = [panel for one in known for panel in _panels(shown, one)]
    panels += _changed(shown)
    if not panels:
        return None
    data, layout = stacked(panels, "")
    # The axis stands below the lowest panel.
    anchor = f"y{len(panels) if len(panels) > 1 else ''}"
    layout |= {"meta": {}, "xaxis": {**_parts_axis(rows), "anchor": anchor}}
    base, other = sides
    return Chart(
        name="compared-ratios",
        kind="plot",
        title=f"Ratio by parameter: {other.letter} over {base.letter}",
        caption=" ".join(_caption(rows, known, tolerance)),
        content={"figure": {"data": _in_legend_once(data), "layout": layout}},
        height=120 + round(90 * sum(panel.height for panel in panels)),
    )


def _caption(rows: Sequence[PairRow], known: Sequence[Measure], tolerance: float) -> Iterator[str]:
    norms = [one.title for one in known if one.title in ("gradient", "weights")]
    if norms:
        yield f"Norm of {' and '.join(norms)} over the base's, parameter by parameter."
    yield from (_TOLD[one.title] for one in known if one.title in _TOLD)
    yield f"The band is the tolerance of {100 * tolerance:.3g} %."
    yield drawn_text(rows)


def _panels(rows: Sequence[PairRow], measure: Measure) -> Iterator[Panel]:
    """Yield the panel of a measure, between strips of what its axis cannot show."""
    known = [row for row in rows if measure.of(row) is not None]
    values = [measure.of(row) or 0.0 for row in known]
    broken = [row for row in known if not math.isfinite(measure.of(row) or 0.0)]
    if broken:
        yield Panel(height=0.35, traces=_strip(broken), axis=strip_axis("NaN, inf"))
    shown = [row for row in known if measure.is_on_axis(measure.of(row) or 0.0)]
    # plotly gives an empty axis no range, and then does not draw its lines.
    if shown:
        yield Panel(
            height=measure.height,
            traces=[_trace(found, measure) for _, found in by_change(shown)],
            axis=_axis(measure, [value for value in values if measure.is_on_axis(value)]),
            band=measure.band,
        )
    zeros = [row for row in known if measure.is_log and measure.of(row) == 0]
    if zeros:
        yield Panel(height=0.35, traces=_strip(zeros), axis=strip_axis("0"))


def _axis(measure: Measure, values: Sequence[float]) -> Axis:
    band = measure.band or measure.least
    if not measure.is_log:
        ends = {} if band is None else {"range": range_around(values, 1.0, band)}
        return {"title": {"text": measure.title}, **ends}
    if band is None:
        return log_axis(measure.title, values)
    # What is shown is wider than the values: the labels of all of it must have room.
    axis = log_axis(measure.title, (*values, 1.0, *band))
    logarithms = [math.log10(value) for value in values]
    return {**axis, "range": range_around(logarithms, 0.0, log_band(band))}


def _trace(rows: Sequence[PairRow], measure: Measure) -> Trace:
    return {
        **_placed(rows),
        "y": numbers(measure.of(row) for row in rows),
    }


def _strip(rows: Sequence[PairRow]) -> list[Trace]:
    return [{**_placed(found), "y": numbers([0.5] * len(found))} for _, found in by_change(rows)]


def _changed(rows: Sequence[PairRow]) -> Iterator[Panel]:
    """Yield a strip of the parameters without a ratio, which matter more than numbers."""
    reported = [row for row in rows if row.pair.ratio is None and row.pair.change in _NUMBERLESS]
    if reported:
        yield Panel(height=0.35, traces=_strip(reported), axis=strip_axis("changed"))


def _placed(rows: Sequence[PairRow]) -> Trace:
    return {**marks(rows), "x": numbers(row.position for row in rows)}


def _in_legend_once(data: Sequence[Json]) -> list[Json]:
    """Return traces with each name only once in the legend."""
    seen: set[Json] = set()
    found: list[Json] = []
    for trace in data:
        assert isinstance(trace, dict)
        found.append({**trace, "showlegend": trace["name"] not in seen})
        seen.add(trace["name"])
    return found


def _parts_axis(rows: Sequence[PairRow]) -> Axis:
    """Return the axis of parameters, on which the parts of the model are named."""
    prefix = _common_modules([row.name for row in rows])
    groups = [
        (part, [row.position for row in group])
        for part, group in groupby(rows, key=lambda row: _part(row.name, prefix))
    ]
    named: list[tuple[str, float]] = []
    for part, inside in groups:
        centre = (inside[0] + inside[-1]) / 2
        # Overlapping names are unreadable.
        if not named or centre - named[-1][1] >= len(rows) / _PARTS:
            named.append((part, centre))
    return {
        "range": [rows[0].position - 0.5, rows[-1].position + 0.5],
        "tickvals": [centre for _, centre in named],
        "ticktext": [lettered(part, _NAME) for part, _ in named],
        "showgrid": False,
        "zeroline": False,
    }


def _common_modules(names: Sequence[str]) -> int:
    """Return the number of first parts that the names of all parameters have in common."""
    split = [name.split(".")[:-1] for name in names]
    least = min(map(len, split))
    return next((at for at in range(least) if len({parts[at] for parts in split}) > 1), least)


def _part(name: str, prefix: int) -> str:
    """Return the part of the model that a parameter is of: `embedding`, `blocks.3`."""
    parts = name.split(".")
    # A number alone would look like one of the axis.
    start = prefix - 1 if prefix and parts[prefix].isdigit() else prefix
    modules = parts[start:-1]
    depth = 2 if len(modules) > 1 and modules[1].isdigit() else 1
    return ".".join(modules[:depth]) or name.rpartition(".")[2]


_BINS = 41

_FEW = 6
"""Height of bars up to which each whole number has a tick."""
_MARGIN = 1 + 1e-9
"""Margin of the outermost bins beyond the outermost ratios."""


def compared_spread(
    rows: Sequence[PairRow], sides: tuple[Side, Side], tolerance: float
) -> Chart | None:
    """Return the chart; None if fewer than two ratios differ."""
    known = [row for row in rows if _is_drawn(row.pair.ratio)]
    ratios = [row.pair.ratio or 0.0 for row in known]
    if len(set(ratios)) < 2:
        return None
    base, other = sides
    band = 1 / (1 + tolerance), 1 + tolerance
    edges = bin_edges(ratios, band)
    drawn = [math.log10(edge) for edge in (edges[0], edges[-1])]
    highest = max(Counter(_bin_of(ratio, edges) for ratio in ratios).values())
    layout: dict[str, Json] = {
        "barmode": "overlay",
        "bargap": 0,
        "showlegend": True,
        "legend": {"traceorder": "normal"},
        "xaxis": {
            **log_axis(f"gradient norm, {other.letter} over {base.letter}", edges),
            "range": range_around(drawn, 0.0, log_band(band)),
        },
        "yaxis": {
            "title": {"text": "parameters"},
            "rangemode": "tozero",
            # Plotly would label parts of a parameter.
            **({"dtick": 1} if highest <= _FEW else {}),
        },
        "shapes": [_band(band)],
    }
    return Chart(
        name="compared-spread",
        kind="plot",
        title="Distribution of the ratios",
        caption=" ".join(_spread_caption(rows, len(known))),
        content={"figure": {"data": list(_bars(known, edges)), "layout": layout}},
        is_wide=False,
        height=520,
    )


def bin_edges(ratios: Sequence[float], band: tuple[float, float]) -> list[float]:
    """Return the ends of bins that are equally wide on a logarithmic axis, and hold all ratios.

    Ratios that are near each other have few bins: the axis also shows the band, beside which many
    would be too narrow to be seen.
    """
    low, high = math.log10(min(ratios) / _MARGIN), math.log10(max(ratios) * _MARGIN)
    ends = low, high, *log_band(band)
    bins = max(round(_BINS * (high - low) / (max(ends) - min(ends))), 1)
    return [10 ** (low + (high - low) * at / bins) for at in range(bins + 1)]


def _is_drawn(ratio: float | None) -> bool:
    return ratio is not None and 0 < ratio < math.inf


def _spread_caption(rows: Sequence[PairRow], known: int) -> Iterator[str]:
    yield f"Of {counted(known, 'parameter')}; the band is the tolerance."
    if known < len(rows):
        yield f"{len(rows) - known:,} have no finite, positive ratio."


def _bars(rows: Sequence[PairRow], edges: Sequence[float]) -> Iterator[Trace]:
    bins = list(pairwise(edges))
    below = [0] * len(bins)
    for change, found in by_change(rows):
        counts = [0] * len(bins)
        for row in found:
            counts[_bin_of(row.pair.ratio or 0.0, edges)] += 1
        yield bin_bars(bins, counts, below, title_of(change), color_of(change))
        below = [one + count for one, count in zip(below, counts, strict=True)]


def _bin_of(ratio: float, edges: Sequence[float]) -> int:
    return bisect_right(edges, ratio, hi=len(edges) - 1) - 1


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
