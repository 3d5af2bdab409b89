"""Tables of parameters and tensors, and small tables that need no JavaScript."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from gradscope.analysis.layers import (
    ParameterCourse,
    optimizer_names,
    parameter_courses,
)
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow
from gradscope.analysis.view import short_location, shown_site
from gradscope.recording.finding import SEVERITIES, Finding
from gradscope.recording.records import GradientStat, Site
from gradscope.report.html.columns import Json, ModuleIndices, numbers, positions, texts
from gradscope.report.html.page import Chart
from gradscope.report.number_format import made_by, shape_text

WordKind = Literal["name", "text", "location", "state", "findings"]
"""`location` is a line of code; `state` is a parameter's state after backward; `findings` are
levels and codes in turn, as `error GS101 note GS112`.
"""
NumberKind = Literal["number", "count", "share", "cosine"]
CellKind = WordKind | NumberKind


def parameter_table(report: Report) -> Chart | None:
    """Return the table of parameters; None without any."""
    rows = report.parameters
    if not rows:
        return None
    ratios = [row.grad_to_weight for row in rows]
    updates = [row.update_to_weight for row in rows]
    columns = (
        *word_column("parameter", "name", [row.name for row in rows]),
        *word_column("findings", "findings", findings_of_parameters(report)),
        *word_column("state", "state", [state_text(row) for row in rows]),
        *word_column("shape", "text", [shape_text(row) for row in rows]),
        *_gradient_columns([row.grad for row in rows]),
        *number_column("weight norm", "number", [row.weight_norm for row in rows]),
        *number_column("gradient / weight", "number", ratios, has_bar=True),
        *number_column("update / weight", "number", updates, has_bar=True),
        *_line_columns(rows, report),
        *word_column("reason if missing", "text", [row.reason for row in rows]),
    )
    links = {
        "module": positions(ModuleIndices(report).each(row.module for row in rows)),
        "parameter": positions(row.index for row in rows),
    }
    return table_chart("parameters", len(rows), columns, links)


def tensor_table(report: Report) -> Chart | None:
    """Return the table of intermediate tensors; None without any."""
    rows = report.tensors
    if not rows:
        return None
    calls = [row.call for row in rows]
    columns = (
        *word_column("tensor", "text", [made_by(row) for row in rows]),
        module_column("module", "name", "path"),
        # Where every module is called once, the column would hold zeros alone.
        *(number_column("call", "count", calls, "counted from 0") if any(calls) else ()),
        *word_column("findings", "findings", _findings_of_tensors(report)),
        *word_column("shape", "text", [shape_text(row) for row in rows]),
        *_gradient_columns([row.grad for row in rows]),
        *number_column("depth", "count", [row.depth for row in rows], "edges from the loss"),
        *number_column("order", "count", [row.order for row in rows], "position in backward"),
        *word_column("line", "location", [line_text(row.site, report) for row in rows]),
        *word_column("reason if missing", "text", [row.reason for row in rows]),
    )
    links = {
        "module": positions(ModuleIndices(report).each(row.module for row in rows)),
        "tensor": positions(range(len(rows))),
    }
    return table_chart("tensors", len(rows), columns, links)


def column(
    title: str, kind: CellKind, values: Json, hint: str = "", *, has_bar: bool = False
) -> dict[str, Json]:
    """Return a column of a table; a bar shows each number on a logarithmic scale."""
    return {
        "title": title,
        "kind": kind,
        "values": values,
        **({"hint": hint} if hint else {}),
        **({"bar": True} if has_bar else {}),
    }


def word_column(
    title: str, kind: WordKind, values: Sequence[str | None]
) -> Iterator[dict[str, Json]]:
    """Yield a column of text, if there is any."""
    if any(values):
        yield column(title, kind, texts(values))


def number_column(
    title: str,
    kind: NumberKind,
    values: Sequence[float | None],
    hint: str = "",
    *,
    has_bar: bool = False,
) -> Iterator[dict[str, Json]]:
    """Yield a column of numbers, if there are any."""
    if any(value is not None for value in values):
        yield column(title, kind, numbers(values), hint, has_bar=has_bar)


def module_column(title: str, kind: CellKind, of: str) -> dict[str, Json]:
    """Return a column of the properties of linked modules: see `module_columns`."""
    return {"title": title, "kind": kind, "of": of}


_ROW, _TALLEST = 26, 600
"""Heights in CSS pixels."""


def table_chart(
    name: str, rows: int, columns: Sequence[Mapping[str, Json]], links: Mapping[str, Json]
) -> Chart:
    """Return a table of this number of rows; each link has an entry per row."""
    return Chart(
        name=name,
        kind="table",
        title=f"{name.capitalize()} ({rows:,})",
        caption=(
            "Click a header to sort, a row to highlight the layer. The filter takes words and "
            "comparisons, as in: attn norm>1e-3"
        ),
        content={"name": name, "columns": columns, "links": links},
        height=min(_TALLEST, _ROW * (rows + 3)),
    )


def _gradient_columns(grads: Sequence[GradientStat | None]) -> Iterator[dict[str, Json]]:
    def of(read: Callable[[GradientStat], float | None]) -> list[float | None]:
        return [None if grad is None else read(grad) for grad in grads]

    broken = of(lambda grad: grad.nonfinite)
    yield from number_column("gradient norm", "number", of(lambda grad: grad.norm), has_bar=True)
    yield from number_column(
        "rms", "number", of(lambda grad: grad.rms), "root mean square", has_bar=True
    )
    largest = of(lambda grad: grad.absolute_maximum)
    zeros = of(lambda grad: grad.zero_share)
    if any(value is not None for value in largest):
        yield from number_column("largest", "number", largest, "largest magnitude")
    if any(value is not None for value in zeros):
        yield from number_column("zero", "share", zeros, "share of exact zeros")
    if any(broken):
        yield from number_column("NaN, inf", "count", broken, "non-finite elements")


def findings_of_parameters(report: Report) -> list[str | None]:
    """Return the findings about each parameter, as cells of the kind `findings`."""
    about: dict[str, list[Finding]] = {}
    for finding in report.findings:
        for name in finding.parameters:
            about.setdefault(name, []).append(finding)
    return [
        _marks(found for name in (row.name, *row.aliases) for found in about.get(name, ()))
        for row in report.parameters
    ]


def _findings_of_tensors(report: Report) -> list[str | None]:
    """Return the findings that point to the line which made a tensor."""
    about: dict[Site | None, list[Finding]] = {}
    for finding in report.findings:
        if finding.location is not None:
            about.setdefault(finding.location, []).append(finding)
    return [_marks(about.get(row.site, ())) for row in report.tensors]


def _marks(findings: Iterable[Finding]) -> str | None:
    """Return `error GS101 note GS112`, the worst first; None without findings."""
    found = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    codes = dict.fromkeys(f"{finding.severity} {finding.rule}" for finding in found)
    return " ".join(codes) or None


def _line_columns(rows: Sequence[ParameterRow], report: Report) -> Iterator[dict[str, Json]]:
    """Yield the lines of parameters. A run shows a step of which no operation is known."""
    uses = [line_text(row.use, report) for row in rows]
    yield from word_column("used at", "location", uses)
    definitions = [line_text(row.definition, report) for row in rows]
    yield from word_column("made at", "location", definitions)


def state_text(row: ParameterRow) -> str:
    """Return what backward left in a parameter."""
    is_broken = row.grad is not None and row.grad.is_broken
    return "non-finite" if is_broken else row.reach


def line_text(site: Site | None, report: Report) -> str | None:
    """Return a line of code as `file:line`."""
    return short_location(shown_site(site, report.target.root)) or None


Column = dict[str, Json]


def run_parameter_table(report: Report) -> Chart | None:
    """Return the table of parameters; None without any."""
    rows = report.parameters
    if not rows:
        return None
    found = parameter_courses(report.recording)
    courses = [found.get(row.index) for row in rows]
    optimizers = optimizer_names(report.recording)
    columns = (
        *word_column("parameter", "name", [row.name for row in rows]),
        *word_column("findings", "findings", findings_of_parameters(report)),
        *word_column("last state", "state", [state_text(row) for row in rows]),
        *word_column("shape", "text", [shape_text(row) for row in rows]),
        *_course_columns(courses),
        *number_column("weight norm", "number", [row.weight_norm for row in rows], "the last"),
        *_update_column(courses),
        *word_column("optimizer", "text", [optimizers.get(row.index) for row in rows]),
        *_line_columns(rows, report),
    )
    links = {
        "module": positions(ModuleIndices(report).each(row.module for row in rows)),
        "parameter": positions(row.index for row in rows),
    }
    return table_chart("parameters", len(rows), columns, links)


def _course_columns(courses: Sequence[ParameterCourse | None]) -> Iterator[Column]:
    last = [None if one is None else one.last for one in courses]
    middle = [None if one is None else one.middle for one in courses]
    largest = [None if one is None else one.largest for one in courses]
    steps = [None if one is None else one.largest_step for one in courses]
    yield from number_column("last norm", "number", last, "gradient norm of the last step")
    yield from number_column(
        "median norm", "number", middle, "of the steps with a finite gradient", has_bar=True
    )
    yield from number_column(
        "largest norm", "number", largest, "of the steps with a finite gradient", has_bar=True
    )
    yield from number_column("at step", "count", steps, "the step with the largest norm")
    broken = [None if one is None else one.first_nonfinite for one in courses]
    yield from number_column(
        "NaN, inf from", "count", broken, "the first step with a NaN or an infinity"
    )
    without = [None if one is None else one.without for one in courses]
    zero = [None if one is None else one.zero for one in courses]
    if any(without):
        yield from number_column("steps without", "count", without, "without a gradient")
    if any(zero):
        yield from number_column("steps with zero", "count", zero, "all of the gradient is zero")


def _update_column(courses: Sequence[ParameterCourse | None]) -> Iterator[Column]:
    updates = [None if one is None else one.update for one in courses]
    yield from number_column(
        "update / weight",
        "number",
        updates,
        "median over the steps that were measured",
        has_bar=True,
    )
