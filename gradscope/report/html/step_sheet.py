"""The sheet of one step: of what was inspected, checked, or looked at closely in a run."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.report.html.module_columns import module_columns
from gradscope.report.html.picture import Picture, Sheet
from gradscope.report.html.pictures.depth import depth
from gradscope.report.html.pictures.insides import inside_picture
from gradscope.report.html.pictures.magnitudes import magnitudes
from gradscope.report.html.pictures.module_map import module_map
from gradscope.report.html.pictures.other_steps import other_steps
from gradscope.report.html.tables import parameter_table, tensor_table
from gradscope.report.html.words import words_of


def step_sheet(report: Report, title: str) -> Sheet:
    """Return the sheet of a report without a training run."""
    return Sheet(
        title=title,
        words=words_of(report),
        pictures=tuple(step_pictures(report)),
        modules=module_columns(report),
    )


def step_pictures(report: Report) -> Iterator[Picture]:
    """Yield the pictures of one step, those first that tell the most."""
    found = (
        depth(report),
        module_map(report),
        inside_picture(report),
        magnitudes(report),
        other_steps(report),
        parameter_table(report),
        tensor_table(report),
    )
    yield from (picture for picture in found if picture is not None)
