"""The gradient along the depth: a mark for every tensor and parameter, in the forward's order."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.report.html.charts.axes import thinned
from gradscope.report.html.charts.depth_layout import (
    LOOP_AXIS,
    MARGIN,
    Mark,
    Measure,
    SpineLine,
    State,
    Strips,
    depth_layout,
    loop_axis_trace,
    loop_ticks,
    parameter_marks,
    spine_line,
    tensor_marks,
)
from gradscope.report.html.charts.forward_order import ForwardOrder, flag_traces, flags
from gradscope.report.html.columns import Json, numbers, positions
from gradscope.report.html.page import Chart

_BELOW: tuple[tuple[State, str, str], ...] = (
    ("zero", "zero", "@zero"),
    ("none", "no gradient", "@none"),
    ("frozen", "frozen", "@frozen"),
    ("unmeasured", "not measured", "@frozen"),
)
"""Strips below the axis, from the top, with their colours; non-finite values have a strip above it.
"""

_MEASURES: tuple[tuple[Measure, str, str], ...] = (
    ("norm", "norm", "gradient norm"),
    ("rms", "per element", "root mean square of the gradient"),
    ("weight", "÷ weight", "gradient norm / weight norm"),
    ("update", "update ÷ weight", "update norm / weight norm"),
)
"""Measures that can be drawn: text of the button, and title of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace of plotly, and what changes in it when something else than norms is drawn."""

    drawn: Mapping[str, Json]
    patches: Mapping[str, Json] = field(default_factory=dict)
    """Changes of the chart, by measure, as `rms`."""


def depth(report: Report) -> Chart | None:
    """Return the chart; None without tensors and parameters."""
    order = ForwardOrder(report)
    if not order.length:
        return None
    tensors, parameters = tensor_marks(report, order), parameter_marks(report, order)
    states = {mark.state for mark in (*tensors, *parameters)}
    raised = flags(report, order)
    rows = max((flag.row + 1 for flag in raised), default=0)
    broken = ["NaN, inf"] * ("broken" in states)
    strips = Strips(
        # Findings may take several rows, of which one has the title.
        above=(*broken, *[""] * (rows - 1), *["findings"] * bool(rows)),
        below=tuple(title for state, title, _ in _BELOW if state in states),
    )
    line, ticks = spine_line(report), loop_ticks(order)
    traces = [
        *_number_traces(tensors, parameters),
        *([] if line is None else [_line_trace(line, tensors)]),
        *_strip_traces(tensors, parameters),
        *(Trace(drawn=trace) for trace in flag_traces(raised, report, len(broken), order.length)),
        *([Trace(drawn=loop_axis_trace(strips.topmost))] if ticks else []),
    ]
    layout = depth_layout(order, report, strips, ticks)
    return Chart(
        name="depth",
        kind="plot",
        title="Gradient by depth",
        caption=_caption(tensors, parameters, line),
        content={
            "figure": {"data": [trace.drawn for trace in traces], "layout": layout},
            "switches": [{"label": "shown", "choices": _choices(traces, (*tensors, *parameters))}],
        },
        height=strips.height + MARGIN + (LOOP_AXIS if ticks else 0),
    )


def _number_traces(tensors: Sequence[Mark], parameters: Sequence[Mark]) -> Iterator[Trace]:
    marks = _drawn(tensors)
    yield Trace(
        drawn={
            **_scatter(marks, "tensor"),
            "name": "tensors",
            "y": _values(marks, "norm"),
            "marker": {"color": "@series-0", "size": 6, "opacity": 0.45},
        },
        patches={"rms": {"y": _values(marks, "rms")}, **_HIDDEN},
    )
    marks = _drawn(parameters)
    ratios: tuple[Measure, ...] = ("rms", "weight", "update")
    yield Trace(
        drawn={
            **_scatter(marks, "parameter"),
            "name": "parameters",
            "y": _values(marks, "norm"),
            "marker": {"color": "@series-1", "size": 8, "symbol": "diamond-open"},
        },
        patches={measure: {"y": _values(marks, measure)} for measure in ratios},
    )


_HIDDEN: Mapping[str, Json] = {"weight": {"visible": False}, "update": {"visible": False}}
"""Changes that hide tensors, which have no weight."""


def _drawn(marks: Sequence[Mark]) -> list[Mark]:
    """Return the rows with numbers; of too many, the extremes."""
    found = [mark for mark in marks if mark.state == "number"]
    values = [[mark.value(measure) or 0.0 for mark in found] for measure in ("norm", "rms")]
    return [found[at] for at in thinned([mark.position for mark in found], values)]


def _values(marks: Sequence[Mark], measure: Measure) -> Json:
    return numbers(mark.value(measure) for mark in marks)


_MARKED = 300
"""Points of a line up to which each has a mark; marks of more are one band, and slow to draw."""


def _line_trace(line: SpineLine, tensors: Sequence[Mark]) -> Trace:
    of_tensor = {mark.index: mark for mark in tensors}
    marks = [of_tensor[at] for at in line.tensors if at in of_tensor]
    # The line is interrupted where the gradient is not finite.
    return Trace(
        drawn={
            "type": "scatter",
            "mode": "lines+markers" if len(marks) <= _MARKED else "lines",
            "name": f"{line.operation}, which every gradient passes",
            "x": positions(mark.position for mark in marks),
            "y": _values(marks, "norm"),
            "line": {"color": "@series-0", "width": 2},
            "marker": {"color": "@series-0", "size": 7},
            # The marks of the tensors tell the same.
            "hoverinfo": "skip",
        },
        patches={"rms": {"y": _values(marks, "rms")}, **_HIDDEN},
    )


def _scatter(marks: Sequence[Mark], link: str) -> dict[str, Json]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": positions(mark.position for mark in marks),
        "meta": {
            "told": f"{link}s",
            "links": {
                "module": positions(mark.module for mark in marks),
                link: positions(mark.index for mark in marks),
            },
        },
    }


def _strip_traces(tensors: Sequence[Mark], parameters: Sequence[Mark]) -> Iterator[Trace]:
    """Yield the values that the axis cannot show, which are often the most important."""
    both = {mark.state for mark in (*tensors, *parameters)}
    below = [(state, colour) for state, _, colour in _BELOW if state in both]
    strips = [("broken", "@broken", "y3", 0)] if "broken" in both else []
    strips += [(state, colour, "y2", row) for row, (state, colour) in enumerate(below)]
    for state, colour, axis, row in strips:
        for link, symbol, marks in (
            ("tensor", "circle", tensors),
            ("parameter", "diamond-open", parameters),
        ):
            if found := _thinned_strip([mark for mark in marks if mark.state == state]):
                yield Trace(
                    drawn={
                        **_scatter(found, link),
                        "y": [row + aside for aside in _beside(found)],
                        "yaxis": axis,
                        "marker": {"color": colour, "size": 7, "symbol": symbol},
                        "showlegend": False,
                    }
                )


def _thinned_strip(marks: Sequence[Mark]) -> list[Mark]:
    at = [mark.position for mark in marks]
    return [marks[kept] for kept in thinned(at, [list(map(float, range(len(marks))))])]


def _beside(marks: Sequence[Mark]) -> Iterator[float]:
    """Yield offsets within a strip that separate the marks of one position."""
    seen = Counter[int]()
    for mark in marks:
        turn = seen[mark.position] % len(_ASIDE)
        seen[mark.position] += 1
        yield _ASIDE[turn]


_ASIDE = (0.0, 0.3, -0.3)


def _choices(traces: Sequence[Trace], marks: Sequence[Mark]) -> list[Json]:
    spans = {measure: _span(marks, measure) for measure, _, _ in _MEASURES}
    return [
        {
            "label": label,
            "data": [trace.patches.get(measure) for trace in traces],
            "layout": {
                "yaxis": {
                    "title": {"text": title},
                    # Plotly keeps a reader's zoom while this stays the same: measures have other
                    # ranges.
                    "uirevision": measure,
                    **_ticks(spans[measure]),
                }
            },
        }
        for measure, label, title in _MEASURES
        if measure == "norm" or spans[measure] >= 0
    ]


def _ticks(span: float) -> dict[str, Json]:
    """Return the ticks of an axis over this many powers of ten; few also get ticks at 2 and 5."""
    if span <= _FEW:
        # Without a format, plotly writes 5 for 0.5.
        return {"dtick": "D2", "tickformat": ".3~g"}
    return {"dtick": math.ceil(span / _MOST_TICKS), "tickformat": ""}


_FEW, _MOST_TICKS = 2.0, 8


def _span(marks: Sequence[Mark], measure: Measure) -> float:
    """Return the range of values in powers of ten; negative without any."""
    levels = [math.log10(value) for mark in marks if (value := mark.value(measure)) is not None]
    return max(levels) - min(levels) if levels else -1.0


def _caption(tensors: Sequence[Mark], parameters: Sequence[Mark], line: SpineLine | None) -> str:
    parts = [
        "A circle is a tensor of the forward, a diamond a parameter at its first use. Backward "
        "runs from right to left: gradients that fall to the left vanish, those that rise explode."
    ]
    if line is not None:
        parts.append(
            f"The line joins the outputs of {line.operation} that every gradient passes. Rules use "
            "these."
        )
    marks = [mark for mark in (*tensors, *parameters) if mark.state == "number"]
    drawn = len(_drawn(tensors)) + len(_drawn(parameters))
    if drawn < len(marks):
        parts.append(
            f"{drawn:,} of {len(marks):,} are drawn: the extremes of each section, and some others."
        )
    return " ".join(parts)
