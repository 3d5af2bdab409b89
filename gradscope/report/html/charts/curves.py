"""Training curves: loss, gradient norm, updates and learning rate over the steps of a run."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gradscope.analysis.columns import envelope as extremes
from gradscope.analysis.columns import measured_curves
from gradscope.analysis.kept_steps import Span
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import CurveKind, RunStep, TrainingRun
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, printable
from gradscope.report.documents.run_phrasing import CURVE_NAMES, curves_note, optimizer_text
from gradscope.report.html.charts.axes import (
    MOST_MARKS,
    Panel,
    lettered,
    shortened,
    stacked,
    step_axis,
    thinned,
)
from gradscope.report.html.charts.long_runs import envelope
from gradscope.report.html.charts.step_marks import (
    MarkRow,
    StepMark,
    finding_marks,
    mark_panel,
    mark_rows,
)
from gradscope.report.html.columns import Json, numbers, positions, single_numbers
from gradscope.report.html.page import Chart

SwitchTrace = Mapping[str, Json]
MARGIN = 0.012
"""Margin on both sides, as a share of an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTrace:
    """The data of a trace."""

    steps: tuple[int, ...]
    """Steps of the marks."""
    optimizer: str = ""
    """Optimizer of these steps; empty if not stated."""


def switches(
    run: TrainingRun,
    drawn: Sequence[DrawnTrace],
    layout: SwitchTrace,
    findings: Iterable[StepMark],
) -> list[Json]:
    """Return the rows of buttons over a figure of panels with one axis of steps."""
    seconds = {step.step: step.seconds for step in run.steps if step.seconds is not None}
    found: list[Json] = [_scales(layout), *_optimizers(drawn)]
    if len(seconds) > 1:
        found.append(_axes(seconds, drawn, findings))
    return found


def step_line(step: float | None, color: str) -> SwitchTrace:
    """Return a line across all panels."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": step,
        "x1": step,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"color": color, "width": 1},
        "opacity": 0.5,
    }


def _scales(layout: SwitchTrace) -> SwitchTrace:
    """Return buttons that have every panel on one scale."""
    panels = [name for name, axis in layout.items() if isinstance(axis, Mapping) and "type" in axis]
    choices: list[Json] = [{"label": "auto"}]
    for label, scale in (("logarithmic", "log"), ("linear", "linear")):
        # A zoomed range does not apply to the other scale.
        patch: SwitchTrace = {"type": scale, "uirevision": scale}
        choices.append({"label": label, "layout": dict.fromkeys(panels, patch)})
    return {"label": "scale", "choices": choices}


def _optimizers(drawn: Sequence[DrawnTrace]) -> Iterator[SwitchTrace]:
    """Yield buttons that show the curves of one optimizer, if there are several."""
    names = list(dict.fromkeys(trace.optimizer for trace in drawn if trace.optimizer))
    if len(names) < 2:
        return
    choices: list[Json] = [{"label": "all"}]
    for name in names:
        shown = [{"visible": trace.optimizer in ("", name)} for trace in drawn]
        choices.append({"label": name, "data": shown})
    yield {"label": "optimizer", "choices": choices}


def _axes(
    seconds: Mapping[int, float], drawn: Sequence[DrawnTrace], findings: Iterable[StepMark]
) -> SwitchTrace:
    known = [(mark, seconds[mark.step]) for mark in findings if mark.step in seconds]
    start, end = min(seconds.values()), max(seconds.values())
    margin = (end - start) * MARGIN
    by_time: SwitchTrace = {
        "label": "seconds",
        "data": [{"x": single_numbers(map(seconds.get, trace.steps))} for trace in drawn],
        "layout": {
            "xaxis": {
                "title": {"text": "seconds since the run began"},
                "uirevision": "seconds",
                "range": [start - margin, end + margin],
                "tickformat": "",
                "tickmode": "auto",
                "hoverformat": ".4~g",
            },
            "shapes": [step_line(at, mark.color) for mark, at in known],
            # The selection is a step, which has no position on this axis.
            "meta": {"stepAxes": []},
        },
    }
    return {"label": "over", "choices": [{"label": "steps"}, by_time]}


Trace = Mapping[str, Json]
Points = Sequence[tuple[int, float]]

_OPTIMIZERS = 8
"""Maximum number of optimizers that are drawn: those with most steps. Each has a colour."""
_PANELS: tuple[tuple[tuple[CurveKind, ...], float], ...] = (
    (("loss",), 1.0),
    (("raw", "norm"), 1.0),
    (("update",), 0.7),
    (("rate",), 0.5),
)
"""Curves of each panel, and its height."""
_UNIT = 150
"""Unit of height, in pixels."""
_ROW = 0.14
_TICKS = 5
_MARKED = 120
"""Number of points up to which each gets a mark of its own."""
_OWN = ("x", "diamond-open")
"""Marks of rows for values that a curve cannot show."""
DECADES = 1.5
"""Range in decades above which a panel is logarithmic."""


def curve_chart(report: Report, run: TrainingRun) -> Chart | None:
    """Return the curves of a run; None if nothing was measured."""
    curves = _curves(run)
    if not any(curve.measured for curve in curves):
        return None
    named = [panel for group, height in _PANELS for panel in _panel(curves, group, height)]
    rows = mark_rows(report, run, {curve.optimizer: curve.measured for curve in curves})
    marks = [mark_panel(rows, _ROW)] if rows else []
    panels = [*marks, *(one.panel for one in named)]
    drawn = [
        *(DrawnTrace(steps=tuple(mark.step for mark in row.marks)) for row in rows),
        *(trace for one in named for trace in one.drawn),
    ]
    data, layout = stacked(panels, "step")
    height = sum(panel.height for panel in panels) + 0.18 * len(panels)
    return Chart(
        name="curves",
        kind="plot",
        title="Loss, gradient and updates",
        caption=" ".join(_caption(run, curves, rows)),
        content={
            "figure": {
                "data": data,
                "layout": {
                    **layout,
                    # The tooltip shows the values of all panels at the step.
                    "hovermode": "x",
                    "hoversubplots": "axis",
                    "showlegend": _has_legend(data),
                    "xaxis": _step_axis(run, layout["xaxis"]),
                    "shapes": [step_line(mark.step, mark.color) for mark in finding_marks(report)],
                    "annotations": [
                        _title(one.name, position)
                        for position, one in enumerate(named, start=1 + len(marks))
                    ],
                },
            },
            "switches": switches(run, drawn, layout, finding_marks(report)),
        },
        height=round(_UNIT * height) + 90,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfOptimizer:
    """The measurements in the steps of one optimizer."""

    optimizer: int
    name: str
    """Name of the optimizer; empty if there is only one."""
    measured: Mapping[CurveKind, Points]
    """Numbers of the steps that are whole, and the lowest and highest of those that are not."""
    whole: Mapping[CurveKind, Points]
    """Numbers of the steps that are whole."""
    spans: Mapping[CurveKind, Sequence[Span]]
    """What is known of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedPanel:
    name: str
    panel: Panel
    drawn: tuple[DrawnTrace, ...]
    """Content of its traces."""


def _curves(run: TrainingRun) -> list[_OfOptimizer]:
    by_optimizer: dict[int, list[RunStep]] = {}
    for step in run.steps:
        by_optimizer.setdefault(step.optimizer, []).append(step)
    busiest = sorted(by_optimizer, key=lambda position: -len(by_optimizer[position]))[:_OPTIMIZERS]
    found = []
    for position in sorted(busiest):
        whole = measured_curves(by_optimizer[position])
        spans = run.summaries.get(position, {})
        found.append(
            _OfOptimizer(
                optimizer=position,
                name=_name(run, position) if len(by_optimizer) > 1 else "",
                measured={
                    kind: _with_summaries(points, spans.get(kind, ()))
                    for kind, points in whole.items()
                },
                whole=whole,
                spans=spans,
            )
        )
    return found


def _with_summaries(points: Points, spans: Sequence[Span]) -> Points:
    return sorted({*points, *extremes(spans)}) if spans else points


def _name(run: TrainingRun, position: int) -> str:
    row = run.optimizers[position]
    return shortened(printable(row.name or optimizer_text(row, run)), 40)


def _panel(
    curves: Sequence[_OfOptimizer], group: Sequence[CurveKind], height: float
) -> Iterator[_NamedPanel]:
    found = [
        (curve, kind, position)
        for kind in group
        for position, curve in enumerate(curves)
        if kind in curve.measured
    ]
    if not found:
        return
    points = [drawn_points(curve.measured[kind]) for curve, kind, _ in found]
    values = [value for curve, kind, _ in found for _, value in curve.measured[kind]]
    yield _NamedPanel(
        name=CURVE_NAMES[group[-1]],
        panel=Panel(
            height=height,
            traces=[
                _trace(curve, kind, position, of_curve, len(curves))
                for (curve, kind, position), of_curve in zip(found, points, strict=True)
            ],
            axis=_axis(group[-1], values),
        ),
        drawn=tuple(
            DrawnTrace(steps=tuple(step for step, _ in of_curve), optimizer=curve.name)
            for (curve, _, _), of_curve in zip(found, points, strict=True)
        ),
    )


def _axis(kind: CurveKind, values: Sequence[float]) -> Trace:
    levels = [math.log10(value) for value in values if 0 < value < math.inf]
    decades = max(levels, default=0.0) - min(levels, default=0.0)
    has_negative = any(value < 0 for value in values)
    is_log = decades > DECADES and not has_negative
    return {
        "type": "log" if is_log else "linear",
        "rangemode": "normal" if is_log or has_negative or kind == "loss" else "tozero",
        "exponentformat": "power",
        # Ticks at 2 and 5 between powers of ten do not fit.
        **({"dtick": math.ceil(decades / _TICKS)} if is_log else {"nticks": _TICKS}),
    }


def _trace(
    curve: _OfOptimizer, kind: CurveKind, position: int, points: Points, curves: int
) -> Trace:
    long = envelope(curve.whole[kind], curve.spans.get(kind, ()), curves * len(curve.whole))
    steps = [step for step, _ in points]
    color = f"@series-{position}" if curve.name else "@series-7" if kind == "raw" else "@series-0"
    owner = lettered(curve.name)
    name = owner if kind != "raw" else f"{owner} before the clip".strip()
    label = CURVE_NAMES[kind] if kind != "raw" else "norm before the clip"
    is_sparse = len(points) <= _MARKED
    # It is measured only in some steps: the tooltip shows the nearest one.
    at = " at step %{customdata:count}" if kind == "update" else ""
    return {
        "type": "scatter",
        "mode": "lines+markers" if is_sparse else "lines",
        "name": name or ("after the clip" if kind == "norm" else label),
        "legendgroup": name or kind,
        "showlegend": _has_figure(curve, kind),
        "x": numbers(steps),
        "y": numbers(value if math.isfinite(value) else None for _, value in points),
        "customdata": positions(steps),
        "hovertemplate": f"{label} %{{y:exact}}{at}<extra>{owner}</extra>",
        "line": {"color": color, "width": 1 if kind == "raw" else 1.5},
        "opacity": 0.6 if kind == "raw" else 1,
        "marker": {"color": color, "size": 4 if is_sparse and len(points) > 1 else 7},
        "meta": {
            "links": {"step": positions(steps)},
            "under": True,
            "curve": kind,
            **({} if long is None else {"envelope": long}),
        },
    }


def drawn_points(points: Points) -> list[tuple[int, float]]:
    """Return the points to draw: all, or the least and largest of each bin of steps.

    What is not finite comes with them, by bins likewise: the curve breaks off there.
    """
    drawn: list[tuple[int, float]] = []
    for is_finite in (True, False):
        found = [point for point in points if math.isfinite(point[1]) == is_finite]
        ranks = [[value if is_finite else float(step) for step, value in found]]
        drawn += [found[position] for position in thinned([step for step, _ in found], ranks)]
    return sorted(drawn, key=lambda point: point[0])


def _step_axis(run: TrainingRun, axis: Json) -> Trace:
    steps = [step.step for step in run.steps]
    margin = max((steps[-1] - steps[0]) * MARGIN, 0.5)
    given = axis if isinstance(axis, Mapping) else {}
    return {
        **given,
        **step_axis(steps[0], steps[-1], margin),
        "hoverformat": ",d",
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 1,
        "spikedash": "dot",
        "spikecolor": "@ink-soft",
    }


def _title(name: str, position: int) -> Trace:
    """Return a panel's title: there is more space above it than beside it."""
    return {
        "text": f"<b>{name}</b>",
        "showarrow": False,
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "yref": f"y{position if position > 1 else ''} domain",
        "y": 1,
        "yanchor": "bottom",
        "font": {"color": "@ink-soft"},
    }


def _has_figure(curve: _OfOptimizer, kind: CurveKind) -> bool:
    """Whether the legend names a curve: each optimizer once, and the norm before and after."""
    if kind == "raw" or not curve.name:
        return "raw" in curve.measured and kind in ("raw", "norm")
    return kind == next(other for other in curve.measured if other != "raw")


def _has_legend(data: Sequence[Json]) -> bool:
    reported = [trace for trace in data if isinstance(trace, Mapping) and trace.get("showlegend")]
    return len(reported) > 1


def _caption(
    run: TrainingRun, curves: Sequence[_OfOptimizer], rows: Sequence[MarkRow]
) -> Iterator[str]:
    if note := curves_note(run):
        yield f"{note[0].upper()}{note[1:]}."
    if any(row.symbol in _OWN for row in rows):
        yield "Zero, NaN and infinite values have their own row on top."
    longest = max(len(points) for curve in curves for points in curve.measured.values())
    if longest > MOST_MARKS or any(curve.spans for curve in curves):
        yield (
            f"Of {run.step_count:,} steps, neighbours are drawn as their mean, with a band from the"
            " lowest to the highest number. Zoom in for finer ones."
        )
    if (more := len({step.optimizer for step in run.steps}) - len(curves)) > 0:
        yield f"{counted(more, 'more optimizer')} with fewer steps omitted."
    yield "Click a step to select it. The gradient of the selected layer is a dotted line."
