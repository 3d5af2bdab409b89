"""The parts of a Markdown report that only a training run has."""

from collections.abc import Iterator

from gradscope.analysis.columns import Columns, curves
from gradscope.analysis.layers import layers
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted, printable
from gradscope.report.markdown_syntax import code, escape, preformatted
from gradscope.report.number_format import figure
from gradscope.report.page import UNICODE
from gradscope.report.run.phrasing import (
    CURVE_NAMES,
    captured_steps_text,
    cost_text,
    course_text,
    curves_note,
    extreme_text,
    heading,
    layer_ends,
    layer_name,
    length_text,
    of_each_optimizer,
    optimizer_text,
    pattern_text,
)
from gradscope.report.run.text_strips import Scale, scale_of, strip

_WIDTH = 40
_SHOWN = 5
_ROWS = 40


def run_summary(report: Report, run: TrainingRun) -> str:
    """Return what was run, in a line or two."""
    summary = report.summary
    size = f"**{summary.numel:,}** elements in {counted(summary.parameters, 'parameter')}"
    made = [
        f"{code(optimizer_text(row, run))} ({counted(row.steps, 'step')})"
        for row in run.optimizers[:_SHOWN]
    ]
    if (more := len(run.optimizers) - _SHOWN) > 0:
        made.append(f"{more:,} more")
    by = f" with {', '.join(made)}" if made else ""
    text = f"**{length_text(run)}**{by}. {size}."
    if run.cost is not None and (cost := cost_text(run.cost)):
        text += f" Measured: {escape(cost)}."
    if run.captured_steps:
        text += f" Every tensor was captured at {escape(captured_steps_text(run))}."
    if run.ending is None:
        return text
    details = f": {escape(run.ending.details)}" if run.ending.details else ""
    return f"{text}\n\n**{escape(run.ending.title)}**{details}"


def run_blocks(report: Report, run: TrainingRun, view: ViewOptions) -> Iterator[str]:
    """Yield steps, curves and layers."""
    yield from _steps(report, run)
    if not run.steps:
        return
    columns = Columns.over(run, _WIDTH)
    yield from _curves(run, columns)
    yield from _layers(report, view, columns)


def _steps(report: Report, run: TrainingRun) -> Iterator[str]:
    if not run.patterns:
        return
    lines = []
    for position, drawn in of_each_optimizer(run):
        if position is None or len(run.optimizers) > 1:
            lines.append(heading(run, position))
        width = max(len(f"{pattern.count:,}") for pattern in drawn)
        for pattern in drawn[:_SHOWN]:
            at = shown_site(pattern.site, report.target.root)
            first = "" if pattern.is_typical else f"  first step {pattern.first:,}"
            count = f"{pattern.count:>{width},} {UNICODE.times}"
            lines.append(f"{count}  {pattern_text(pattern, UNICODE)}{first}  {at}".rstrip())
        if (more := len(drawn) - _SHOWN) > 0:
            lines.append(f"{UNICODE.ellipsis} {more:,} more")
    yield "### Steps"
    yield preformatted(lines)


def _curves(run: TrainingRun, columns: Columns) -> Iterator[str]:
    lines = []
    position = None
    for curve in curves(run, columns, _SHOWN):
        if curve.optimizer != position and len(run.optimizers) > 1:
            lines.append(heading(run, curve.optimizer))
        position = curve.optimizer
        ends = course_text(curve.course, UNICODE)
        extreme = extreme_text(curve, UNICODE)
        drawn = strip(curve.course.cells, scale_of(curve), UNICODE)
        lines.append(f"{CURVE_NAMES[curve.kind]:<15}  {drawn}  {ends}  {extreme}".rstrip())
    if lines:
        yield "### Curves"
        if note := curves_note(run):
            yield escape(note)
        yield preformatted(lines)


def _layers(report: Report, view: ViewOptions, columns: Columns) -> Iterator[str]:
    found = layers(report, view, columns)[:_ROWS]
    scale = Scale.decades(row.cells for row in found)
    names = ["  " * row.level + printable(layer_name(row)) for row in found]
    width = max(map(len, names), default=0)
    lines = [
        f"{name:<{width}}  {strip(row.cells, scale, UNICODE)}  {layer_ends(row, UNICODE)}"
        for name, row in zip(names, found, strict=True)
    ]
    if any(cell is not None for row in found for cell in row.cells):
        low, high = figure(scale.low, UNICODE), figure(scale.high, UNICODE)
        yield "### Layers"
        yield f"Gradient norms, logarithmic from {low} to {high}; steps from left to right."
        yield preformatted(lines)
