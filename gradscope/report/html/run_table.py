"""The table of a run's parameters: how the gradient of each went over the steps."""

from collections.abc import Iterator, Sequence

from gradscope.analysis.layers import (
    ParameterCourse,
    optimizer_names,
    parameter_courses,
)
from gradscope.analysis.report import Report
from gradscope.report.html.columns import Json, places
from gradscope.report.html.module_places import ModulePlaces
from gradscope.report.html.picture import Picture
from gradscope.report.html.tables import (
    findings_of_parameters,
    line_text,
    number_column,
    state_text,
    table_picture,
    word_column,
)
from gradscope.report.names import shape_text

Column = dict[str, Json]


def run_parameter_table(report: Report) -> Picture | None:
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
        *word_column("line", "place", [line_text(row.site, report) for row in rows]),
    )
    links = {
        "module": places(ModulePlaces(report).each(row.module for row in rows)),
        "parameter": places(row.index for row in rows),
    }
    return table_picture("parameters", len(rows), columns, links)


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
