"""Norms before and after a clip, step by step."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.clipping.series import ClipPoint
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.report.documents.clipping_phrasing import norm_name
from gradscope.report.html.charts.axes import Panel, log_axis, share_axis, stacked, strip_axis
from gradscope.report.html.columns import Json, numbers, positions
from gradscope.report.html.page import Chart

_MOST = 3000
"""Maximum number of points that are drawn singly."""
_MARKED = 600
"""Maximum number of clipped steps that are marked singly."""
_STRETCHES = 60
_SHORTEST = 5
"""Minimum number of steps for a statement on the clipped share."""
_FAINT = 0.1
"""Coefficients below which a linear axis shows nothing."""

Trace = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive steps, and the number of clipped ones."""

    first: int
    last: int
    count: int
    cut: int


def step_chart(section: Section) -> Chart | None:
    """Return the chart; None without steps."""
    if not section.points:
        return None
    points = drawn(section.points)
    panels = list(_panels(section, points))
    data, layout = stacked(panels, "step" if section.site is not None else "gradient measured")
    return Chart(
        name="clip-steps",
        kind="plot",
        title=f"{norm_name(section).capitalize()} before and after",
        caption=" ".join(_caption(section, points)),
        content={"figure": {"data": data, "layout": layout}},
        height=140 + round(100 * sum(panel.height for panel in panels)),
    )


def drawn(points: Sequence[ClipPoint], most: int = _MOST) -> list[ClipPoint]:
    """Return the points to draw; of many, the most distinct ones of each stretch.

    That are its first and last, the least and the greatest of its norms and the hardest cut, and
    the first norm that is zero, infinite and NaN.
    """
    if len(points) <= most:
        return list(points)
    # A stretch keeps up to eight points: its ends, three extremes, and three norms without a
    # logarithm.
    size = math.ceil(8 * len(points) / most)
    positions = sorted(
        position
        for start in range(0, len(points), size)
        for position in _telling(points, range(start, min(start + size, len(points))))
    )
    return [points[position] for position in positions]


def _telling(points: Sequence[ClipPoint], stretch: range) -> set[int]:
    found = {stretch[0], stretch[-1]}
    finite = [position for position in stretch if math.isfinite(points[position].norm)]
    if finite:
        found.add(min(finite, key=lambda position: points[position].norm))
        found.add(max(finite, key=lambda position: points[position].norm))
        found.add(min(finite, key=lambda position: points[position].coefficient))
    for is_kind in (math.isnan, math.isinf, lambda norm: norm == 0):
        found.update([position for position in stretch if is_kind(points[position].norm)][:1])
    return found


def stretches(points: Sequence[ClipPoint]) -> list[Stretch]:
    """Return the number of clipped steps in each stretch of those with a finite norm."""
    finite = [point for point in points if math.isfinite(point.norm)]
    size = max(math.ceil(len(finite) / _STRETCHES), _SHORTEST)
    parts = [finite[start : start + size] for start in range(0, len(finite), size)]
    return [
        Stretch(
            first=part[0].step,
            last=part[-1].step,
            count=len(part),
            cut=sum(point.coefficient < 1 for point in part),
        )
        for part in parts
    ]


def _panels(section: Section, points: Sequence[ClipPoint]) -> Iterator[Panel]:
    broken = [point for point in points if not math.isfinite(point.norm)]
    if broken:
        yield Panel(height=0.3, traces=(_broken(broken),), axis=strip_axis("NaN, inf"))
    norms = [norm for point in points for norm in (point.norm, after_clip(point))]
    # The axis leaves out NaN.
    axis = log_axis(norm_name(section), [*norms, _lasting_limit(section) or math.nan])
    yield Panel(height=2.6, traces=tuple(_norms(section, points)), axis=axis)
    zeros = [point for point in points if point.norm == 0]
    if zeros:
        yield Panel(height=0.3, traces=(_zeros(zeros),), axis=strip_axis("0"))
    if not section.cut:
        return
    finite = [point for point in points if math.isfinite(point.norm)]
    yield Panel(
        height=1.3, traces=tuple(_remaining(section, finite)), axis=_remaining_axis(section, finite)
    )
    if len(section.points) >= 2 * _SHORTEST:
        bars = _share(stretches(section.points))
        yield Panel(height=0.8, traces=(bars,), axis=share_axis("steps clipped"))


def _turns(section: Section) -> bool:
    """Return whether the clip may change directions, and the change is known."""
    return section.method != "norm" and section.cosines is not None


def _remaining_axis(section: Section, points: Sequence[ClipPoint]) -> Trace:
    kept = [point.coefficient for point in points]
    if min(kept) > 0 and median(kept) < _FAINT and not _turns(section):
        return log_axis("coefficient", kept)
    cosines = [point.cosine for point in points if point.cosine is not None]
    return {"title": {"text": "coefficient"}, "range": [min(0.0, *kept, *cosines), 1.05]}


def _norms(section: Section, points: Sequence[ClipPoint]) -> Iterator[Trace]:
    steps = [point.step for point in points]
    before = [_on_log(point.norm) for point in points]
    yield _line("before", steps, before, "@gradient", len(points))
    if section.method is not None and section.cut:
        after = [_on_log(after_clip(point)) for point in points]
        yield _line("after", steps, after, "@series-2", len(points))
    limit = _lasting_limit(section)
    if limit:
        ends = numbers([steps[0], steps[-1]])
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"limit {short(limit)}",
            "x": ends,
            "y": numbers([limit] * 2),
            "line": {"color": "@ink-soft", "dash": "dash", "width": 1.5},
            "hovertemplate": "limit %{y:figure}<extra></extra>",
        }
    cut = [point for point in points if point.coefficient < 1 and 0 < point.norm < math.inf]
    if cut and len(points) <= _MARKED:
        yield {
            **_marks([point.step for point in cut], numbers(point.norm for point in cut)),
            "name": "cut",
            "marker": {"color": "@series-3", "size": 6},
            "customdata": numbers(point.coefficient for point in cut),
            "hovertemplate": "step %{x:count}<br>norm %{y:exact}<br>"
            "cut to %{customdata:figure} of it<extra></extra>",
        }


def _lasting_limit(section: Section) -> float | None:
    """Return the largest norm that holds in every step, which a line can show."""
    return section.limit if section.method == "norm" and section.limits is None else None


def after_clip(point: ClipPoint) -> float:
    """Return the norm after a clip; a limit below zero turns gradients round."""
    return abs(point.norm * point.coefficient)


def _on_log(norm: float) -> float | None:
    """Return the values that a logarithmic axis can show; the others have strips of their own."""
    return norm if 0 < norm < math.inf else None


def _line(
    name: str, steps: Sequence[int], values: Sequence[float | None], color: str, count: int
) -> Trace:
    return {
        **_marks(steps, numbers(values)),
        "mode": "lines" if count > _MARKED else "lines+markers",
        "name": name,
        "line": {"color": color, "width": 1.5},
        "marker": {"color": color, "size": 4},
        "hovertemplate": f"step %{{x:count}}<br>norm %{{y:exact}} {name}<extra></extra>",
    }


def _marks(steps: Sequence[int], values: Json) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(steps),
        "y": values,
        "meta": {"links": {"step": positions(steps)}},
    }


def _broken(points: Sequence[ClipPoint]) -> Trace:
    return {
        **_marks([point.step for point in points], numbers([0.5] * len(points))),
        "name": "NaN, inf",
        "showlegend": False,
        "marker": {"color": "@broken", "symbol": "x", "size": 8},
        "text": ["NaN" if math.isnan(point.norm) else f"{point.norm:.0f}" for point in points],
        "hovertemplate": "step %{x:count}<br>norm %{text}<extra></extra>",
    }


def _zeros(points: Sequence[ClipPoint]) -> Trace:
    return {
        **_marks([point.step for point in points], numbers([0.5] * len(points))),
        "name": "0",
        "showlegend": False,
        "marker": {"color": "@zero", "symbol": "diamond", "size": 7},
        "hovertemplate": "step %{x:count}<br>norm 0<extra></extra>",
    }


def _remaining(section: Section, points: Sequence[ClipPoint]) -> Iterator[Trace]:
    steps = [point.step for point in points]
    coefficients = [point.coefficient for point in points]
    yield {
        **_line("coefficient", steps, coefficients, "@series-2", len(points)),
        "showlegend": _turns(section),
        "hovertemplate": "step %{x:count}<br>%{y:figure} of the norm remains<extra></extra>",
    }
    if _turns(section):
        cosines = [point.cosine for point in points]
        yield {
            **_line("cosine", steps, cosines, "@series-5", len(points)),
            "hovertemplate": "step %{x:count}<br>cosine %{y:cosine} between before and after"
            "<extra></extra>",
        }


def _share(found: Sequence[Stretch]) -> Trace:
    return {
        "type": "bar",
        "name": "share of steps clipped",
        "showlegend": False,
        "x": numbers((one.first + one.last) / 2 for one in found),
        "width": numbers(one.last - one.first + 1 for one in found),
        "y": numbers(one.cut / one.count for one in found),
        "text": [
            f"steps {one.first:,} to {one.last:,}<br>{one.cut:,} of {one.count:,} cut"
            for one in found
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": "@series-3"},
    }


def _caption(section: Section, points: Sequence[ClipPoint]) -> Iterator[str]:
    if not section.cut:
        yield "Nothing is clipped."
    elif section.limits is not None:
        yield "The limit varies: see the norms that remain after clipping."
    if section.cut:
        yield "Below: share of each norm that remains, and share of steps clipped."
    if any(not math.isfinite(point.norm) or not point.norm for point in points):
        yield "Zero, NaN and infinite values have their own strip."
    if len(points) < len(section.points):
        yield (
            f"{len(points):,} of {len(section.points):,} steps are drawn: per section the smallest"
            " and the largest norm, the strongest clip, and non-finite values."
        )
    yield "Click a step to select it."
