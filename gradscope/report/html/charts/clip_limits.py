"""How norms spread, and what largest norms would cut of them."""

import math
from collections.abc import Iterator, Sequence

from gradscope.analysis.clipping.arithmetic import EPSILON
from gradscope.analysis.clipping.limits import Bin, LimitCurve, SweepRow, spaced
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.clipping.series import ClipPoint
from gradscope.phrasing import short
from gradscope.report.documents.clipping_phrasing import advice_text, exchange_text, norm_name
from gradscope.report.html.charts.axes import bin_bars, log_axis, share_axis
from gradscope.report.html.columns import Json, numbers
from gradscope.report.html.page import Chart

_CURVE = 160
"""Number of limits along a curve."""
_NEAR = 3.0
"""A limit is drawn within this factor of the smallest or the largest norm."""
_LINE = 0.1
"""Height of a label beside a limit, as a share of the chart."""
_STEPS = 400
"""Number of norms up to which a curve has a step at each."""
_STRIP = 0.07
"""Width of the strip for values without a logarithm, as a share of the chart."""
_GAP = 0.02

Trace = dict[str, Json]


def norm_chart(section: Section) -> Chart | None:
    """Return the histogram of norms, clipped and unclipped; None if none is finite."""
    bins = [one for one in section.bins if one.high]
    if not bins or len(section.points) < 2:
        return None
    layout: dict[str, Json] = {"barmode": "overlay", "bargap": 0, "showlegend": bool(section.cut)}
    layout["legend"] = {"traceorder": "normal"}
    layout["yaxis"] = {
        "title": {"text": "steps"},
        "rangemode": "tozero",
        # With a strip of zeros, the vertical axis is at its left.
        "anchor": "x2" if len(bins) < len(section.bins) else "x",
    }
    is_log = not _is_even(bins)
    title = norm_name(section)
    ends = _ends(section, bins)
    axis = log_axis(title, ends) if is_log else {"title": {"text": title}}
    layout["xaxis"] = {**axis, "range": [math.log10(end) if is_log else end for end in ends]}
    data = [*_bars(section, bins), *_beside(section, layout)]
    layout["shapes"], layout["annotations"] = _limits(section, ends, top=1.0, is_log=is_log)
    return Chart(
        name="clip-norms",
        kind="plot",
        title=f"Distribution of {norm_name(section)}s",
        caption="Before the clip. " + ("Norms above the limit are clipped." if section.cut else ""),
        content={"figure": {"data": data, "layout": layout}},
        is_wide=not section.sweep,
        height=340,
    )


def counts(bins: Sequence[Bin], points: Sequence[ClipPoint]) -> list[tuple[int, int]]:
    """Return how many points of each bin are clipped, and how many are not."""
    finite = [point for point in points if math.isfinite(point.norm)]
    inside = [[point for point in finite if one.low <= point.norm < one.high] for one in bins]
    cut = [sum(point.coefficient < 1 for point in ones) for ones in inside]
    return [(found, len(ones) - found) for found, ones in zip(cut, inside, strict=True)]


def _is_even(bins: Sequence[Bin]) -> bool:
    """Return whether bins are equally wide: their norms are of one size then."""
    widths = [one.high - one.low for one in bins]
    return not widths or max(widths) < 1.5 * min(widths)


def _bars(section: Section, bins: Sequence[Bin]) -> Iterator[Trace]:
    found = counts(bins, section.points)
    kept, cut = [one for _, one in found], [one for one, _ in found]
    ends = [(one.low, one.high) for one in bins]
    yield bin_bars(ends, kept, [0] * len(bins), "not cut", "@gradient")
    if any(cut):
        yield bin_bars(ends, cut, kept, "cut", "@series-3")


def _beside(section: Section, layout: dict[str, Json]) -> Iterator[Trace]:
    """Yield values that the axis of norms cannot show, and extend it at its ends for them."""
    start, end = 0.0, 1.0
    zeros = sum(one.count for one in section.bins if not one.high)
    if zeros:
        start = _STRIP + _GAP
        layout["xaxis2"] = _side([0.0, _STRIP])
        yield _side_bar("0", zeros, "x2", "@zero")
    if section.broken:
        end = 1 - _STRIP - _GAP
        layout["xaxis3"] = _side([1 - _STRIP, 1.0])
        yield _side_bar("NaN, inf", len(section.broken), "x3", "@broken")
    axis = layout["xaxis"]
    assert isinstance(axis, dict)
    axis["domain"] = [start, end]


def _side(domain: Sequence[float]) -> Trace:
    return {"type": "category", "domain": list(domain), "fixedrange": True}


def _side_bar(name: str, count: int, axis: str, color: str) -> Trace:
    return {
        "type": "bar",
        "name": name,
        "showlegend": False,
        "x": [name],
        "y": [count],
        "xaxis": axis,
        "marker": {"color": color},
        "hovertemplate": f"{count:,} × {name}<extra></extra>",  # noqa: RUF001 - times is meant
    }


def _own_limits(section: Section) -> list[tuple[str, float, str]]:
    """Return the current limit and the recommended one, each with its text and colour."""
    own = section.limit if section.method == "norm" and not section.is_advised else None
    advised = None if section.advice is None else section.advice.limit
    found = (("limit", own, "@series-3"), ("auto", advised, "@good"))
    return [
        (word, limit, color)
        for word, limit, color in found
        if limit is not None and 0 < limit < math.inf
    ]


def _ends(section: Section, bins: Sequence[Bin]) -> tuple[float, float]:
    """Return the ends of the axis: around the norms, and around limits that are not far away."""
    least, greatest = bins[0].low, bins[-1].high
    size = greatest - least
    near = [
        limit
        for _, limit, _ in _own_limits(section)
        if least - size < limit < greatest + size or least / _NEAR < limit < greatest * _NEAR
    ]
    return min([least, *near]), max([greatest, *(1.1 * limit for limit in near)])


def _limits(
    section: Section, ends: tuple[float, float], *, top: float, is_log: bool
) -> tuple[list[Json], list[Json]]:
    """Return lines at the limits with their labels; arrows to limits farther away."""
    shapes: list[Json] = []
    notes: list[Json] = []
    for position, (word, limit, color) in enumerate(_own_limits(section)):
        if ends[0] <= limit <= ends[1]:
            shapes.append(_upright(limit, color))
        at = min(max(limit, ends[0]), ends[1])
        text = f"{word} {short(limit)}"
        text = f"← {text}" if limit < at else f"{text} →" if limit > at else text
        # Labels in the right half are left of their line, to stay inside the chart.
        share = _share_of(at, ends, is_log=is_log)
        notes.append(
            {
                "xref": "x",
                "yref": "paper",
                # plotly places annotations by the logarithm, but shapes by the value.
                "x": math.log10(at) if is_log else at,
                "y": top - _LINE * position,
                "text": text,
                "showarrow": False,
                "xanchor": "right" if share > 0.5 else "left",
                "yanchor": "top",
                "font": {"color": color},
                "bgcolor": "@paper",
            }
        )
    return shapes, notes


def _share_of(value: float, ends: tuple[float, float], *, is_log: bool) -> float:
    """Return the position of a value along an axis, from 0 to 1."""
    low, high, own = (math.log10(one) if is_log else one for one in (*ends, value))
    return (own - low) / (high - low)


def _upright(limit: float, color: str) -> Trace:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": limit,
        "x1": limit,
        "y0": 0,
        "y1": 1,
        "line": {"color": color, "width": 1.5, "dash": "dash"},
    }


def limit_chart(section: Section) -> Chart | None:
    """Return the effect of each maximum norm; None without data."""
    if not section.sweep:
        return None
    norms = [point.norm for point in section.points if math.isfinite(point.norm)]
    rows = section.sweep
    ends = rows[0].limit / 2, rows[-1].limit * 2
    shapes, notes = _limits(section, ends, top=0.6, is_log=True)
    has_steps = len(norms) <= _STEPS
    curve = LimitCurve.of(norms, _limits_along(norms, ends, [row.limit for row in rows]))
    layout: dict[str, Json] = {
        "showlegend": True,
        "xaxis": {**log_axis("max_norm", ends), "range": [math.log10(end) for end in ends]},
        "yaxis": {**share_axis(), "range": [-0.03, 1.05]},
        "shapes": shapes,
        "annotations": notes,
    }
    texts = () if section.advice is None else tuple(advice_text(section.advice))
    reported = [f"{text}." for text in (*texts, exchange_text(section)) if text]
    return Chart(
        name="clip-limits",
        kind="plot",
        title="Effect of other limits",
        caption=" ".join(text[0].upper() + text[1:] for text in reported),
        content={
            "figure": {"data": list(_curves(curve, rows, has_steps=has_steps)), "layout": layout}
        },
        is_wide=False,
        height=340,
    )


def _limits_along(
    norms: Sequence[float], ends: tuple[float, float], told: Sequence[float]
) -> list[float]:
    """Return limits along a range: at each norm, as long as these are not many."""
    # torch adds its epsilon to the norm: a step is clipped below this limit.
    kept = {norm + EPSILON for norm in norms} if len(norms) <= _STEPS else set()
    limits = {*spaced(*ends, _CURVE), *told, *kept}
    return [limit for limit in limits if ends[0] <= limit <= ends[1]]


def _curves(curve: LimitCurve, rows: Sequence[SweepRow], *, has_steps: bool) -> Iterator[Trace]:
    limits = numbers(curve.limits)
    shares, means = [row.share for row in rows], [row.mean for row in rows]
    for name, color, shape, values, marks in (
        ("steps clipped", "@series-3", "hv" if has_steps else "linear", curve.shares, shares),
        ("average norm after clipping", "@series-2", "linear", curve.means, means),
    ):
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": limits,
            "y": numbers(values),
            # Between two norms the share is constant, and the coefficient grows.
            "line": {"color": color, "width": 2, "shape": shape},
            "hoverinfo": "skip",
        }
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "showlegend": False,
            "x": numbers(row.limit for row in rows),
            "y": numbers(marks),
            "text": [row.mark and f" ({row.mark})" for row in rows],
            "marker": {"color": color, "size": 7},
            "hovertemplate": (
                f"max_norm %{{x:figure}}%{{text}}<br>%{{y:share}} {name}<extra></extra>"
            ),
        }
