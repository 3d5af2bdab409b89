"""What happened at single steps of a run, as rows of marks over one axis of steps."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gradscope.analysis.loop_windows import windows
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import CurveKind, TrainingRun
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding
from gradscope.report.documents.run_phrasing import CURVE_NAMES
from gradscope.report.finding_phrasing import parameter_text
from gradscope.report.html.charts.axes import Panel, lettered
from gradscope.report.html.columns import Json, numbers, positions
from gradscope.report.html.phrasing import module_of_finding

_COLUMNS = 600
"""Maximum number of columns: with more steps, the marks of a row are merged."""
_WIDTH = 64
"""Number of characters of a line of a message."""
_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """A mark at a step, such as a finding or a change of the learning rate."""

    step: int
    text: str
    """Text as plotly writes it."""
    color: str
    module: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRow:
    """Marks of one kind."""

    name: str
    symbol: str
    marks: tuple[StepMark, ...]


Measured = Mapping[int, Mapping[CurveKind, Sequence[tuple[int, float]]]]
"""By optimizer and kind: steps and their measurements."""


def mark_rows(report: Report, run: TrainingRun, measured: Measured) -> list[MarkRow]:
    """Return the rows that there is something to mark in."""
    rows = [
        MarkRow(name="findings", symbol="triangle-down", marks=tuple(finding_marks(report))),
        MarkRow(name="captured", symbol="circle-open", marks=tuple(_captured_steps(run))),
        MarkRow(name="skipped", symbol="line-ns-open", marks=tuple(_skipped(report))),
        *_value_rows(measured),
    ]
    return [row for row in rows if row.marks]


def finding_marks(report: Report) -> Iterator[StepMark]:
    """Yield a mark for each finding that a step shows, the worst last: it is drawn on top."""
    for finding in reversed(report.findings):
        if finding.step is not None:
            yield StepMark(
                step=finding.step,
                text=finding_text(finding, report),
                color=f"@{finding.severity}",
                module=module_of_finding(finding, report),
            )


def finding_text(finding: Finding, report: Report) -> str:
    """Return plotly's text for a finding."""
    title = f"<b>{lettered(f'{finding.severity} {finding.rule} {finding.name}')}</b>"
    lines = _wrapped(finding.message)
    about = parameter_text(finding, report)
    step = [] if finding.step is None else [f"step {finding.step:,}"]
    return "<br>".join([title, *lines, *([lettered(about)] if about else []), *step])


def mark_panel(rows: Sequence[MarkRow], height: float) -> Panel:
    """Return the rows as a panel, the first at the top, each with this height."""
    ticks = range(len(rows) - 1, -1, -1)
    return Panel(
        height=height * len(rows),
        traces=tuple(_trace(row, tick) for row, tick in zip(rows, ticks, strict=True)),
        axis={
            "range": [-0.6, len(rows) - 0.4],
            # All marks of a row have one height: there is nothing to zoom.
            "fixedrange": True,
            "tickvals": list(ticks),
            "ticktext": [row.name for row in rows],
            "zeroline": False,
        },
    )


def _trace(row: MarkRow, tick: int) -> dict[str, Json]:
    marks = row.marks
    return {
        "type": "scatter",
        "mode": "markers",
        "name": row.name,
        "showlegend": False,
        "x": numbers(mark.step for mark in marks),
        "y": numbers([tick] * len(marks)),
        "text": [mark.text for mark in marks],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": _colors(marks),
            "symbol": row.symbol,
            "size": 9,
            "line": {"width": 1.5 if "open" in row.symbol else 0},
        },
        "meta": {
            "links": {
                "step": positions(mark.step for mark in marks),
                "module": positions(mark.module for mark in marks),
            },
            # The line of the selected step shows the selection, and no ring.
            "under": True,
        },
    }


def _colors(marks: Sequence[StepMark]) -> Json:
    colors = [mark.color for mark in marks]
    # A list of equal colours would only make the page larger.
    return colors[0] if len(set(colors)) == 1 else colors


def _captured_steps(run: TrainingRun) -> Iterator[StepMark]:
    for step in dict.fromkeys(row.step for row in run.captured_steps):
        text = f"step {step:,}<br>every tensor was captured"
        yield StepMark(step=step, text=text, color="@accent")


def _skipped(report: Report) -> list[StepMark]:
    found = [window.step.index for window in windows(report.recording) if window.is_skipped]
    return _gathered(found, "@warning", lambda _: "the gradient scaler skipped the previous step")


def _value_rows(measured: Measured) -> Iterator[MarkRow]:
    kinds = dict.fromkeys(kind for curves in measured.values() for kind in curves)
    for kind in kinds:
        name = CURVE_NAMES[kind]
        known = dict(point for curves in measured.values() for point in curves.get(kind, ()))
        broken = [step for step, value in known.items() if not math.isfinite(value)]
        zeros = [step for step, value in known.items() if value == 0]

        # Defaults keep the values of this turn of the loop.
        def told(step: int, name: str = name, known: dict[int, float] = known) -> str:
            return f"{name} {_spelled(known[step])}"

        yield MarkRow(
            name=f"{name} NaN, inf", symbol="x", marks=tuple(_gathered(broken, "@broken", told))
        )
        yield MarkRow(
            name=f"{name} 0", symbol="diamond-open", marks=tuple(_gathered(zeros, "@zero", told))
        )


def _spelled(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.0f}"


def _gathered(steps: Iterable[int], color: str, told: Callable[[int], str]) -> list[StepMark]:
    """Return marks; those of neighbouring steps are merged if there are too many."""
    found = sorted(steps)
    if not found:
        return []
    width = max((found[-1] - found[0]) // _COLUMNS, 1)
    bins: dict[int, list[int]] = {}
    for step in found:
        bins.setdefault((step - found[0]) // width, []).append(step)
    return [
        StepMark(step=steps[0], color=color, text=f"{_steps_text(steps)}<br>{told(steps[0])}")
        for steps in bins.values()
    ]


def _steps_text(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]:,}"
    return f"{len(steps):,} steps from {steps[0]:,} to {steps[-1]:,}, the first"


def _wrapped(text: str) -> list[str]:
    """Return a message in lines that fit into a tooltip."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    shown = lines if len(lines) <= _LINES else [*lines[:_LINES], "…"]
    return [lettered(line) for line in shown]
