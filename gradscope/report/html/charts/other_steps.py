"""The steps on the way to the judged one, and on from there: loss and gradient norm of each."""

import math
from collections.abc import Callable, Iterator, Sequence

from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.report.html.charts.colours import finite
from gradscope.report.html.columns import Json, numbers
from gradscope.report.html.page import Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A step, by the optimizer steps made before it."""

    step: int
    loss: float | None
    norm: float | None
    is_judged: bool = False


def other_steps(report: Report) -> Chart | None:
    """Return the chart; None if the judged step is the only one."""
    points = list(_points(report))
    if len(points) < 2:
        return None
    return Chart(
        name="steps",
        kind="plot",
        title="Steps around the inspected step",
        caption=(
            "Loss and global gradient norm after each optimizer step on a copy of the "
            "model. The large mark is the inspected step; a cross is NaN or infinite."
        ),
        content={"figure": {"data": list(_traces(points)), "layout": _layout(points)}},
        height=340,
    )


def _points(report: Report) -> Iterator[Point]:
    for step in report.training:
        yield Point(step=step.step, loss=step.loss, norm=step.grad_norm)
    summary = report.summary
    if summary.step is not None:
        yield Point(step=summary.step, loss=summary.loss, norm=summary.grad_norm, is_judged=True)
    for step in report.probes:
        yield Point(step=step.step, loss=step.loss, norm=step.grad_norm)


def _traces(points: Sequence[Point]) -> Iterator[Json]:
    panels: tuple[tuple[str, str, str, Callable[[Point], float | None]], ...] = (
        ("loss", "y", "@series-0", lambda point: point.loss),
        ("gradient norm", "y2", "@series-1", lambda point: point.norm),
    )
    for name, axis, colour, read in panels:
        values = [(point, read(point)) for point in points]
        yield {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [point.step for point, _ in values],
            "y": numbers(finite(value) for _, value in values),
            "yaxis": axis,
            "line": {"color": colour},
            "marker": {"color": colour, "size": [11 if p.is_judged else 6 for p, _ in values]},
            "hovertemplate": f"after %{{x}} steps<br>{name} %{{y:exact}}<extra></extra>",
        }
        broken = [point.step for point, value in values if _is_broken(value)]
        if broken:
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name}: NaN, inf",
                "x": broken,
                # Missing numbers are marked at the top of the panel, on an axis of their own.
                "y": [1] * len(broken),
                "yaxis": "y3" if axis == "y" else "y4",
                "marker": {"color": "@broken", "size": 10, "symbol": "x"},
                "hovertemplate": f"after %{{x}} steps<br>{name}: NaN, inf<extra></extra>",
            }


def _is_broken(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


_UNSEEN: dict[str, Json] = {"range": [0, 1.1], "visible": False, "fixedrange": True}


def _layout(points: Sequence[Point]) -> dict[str, Json]:
    is_short = points[-1].step - points[0].step <= _EACH
    return {
        "margin": {"l": 60, "r": 16, "t": 12, "b": 44},
        "xaxis": {
            "title": {"text": "optimizer steps before"},
            "anchor": "y2",
            **({"dtick": 1} if is_short else {}),
        },
        "yaxis": {"title": {"text": "loss"}, "domain": [0.56, 1]},
        "yaxis2": {
            "title": {"text": "gradient norm"},
            "domain": [0, 0.44],
            "rangemode": "tozero",
        },
        "yaxis3": {**_UNSEEN, "overlaying": "y"},
        "yaxis4": {**_UNSEEN, "overlaying": "y2"},
    }


_EACH = 20
"""Number of steps up to which each has its number on the axis."""
