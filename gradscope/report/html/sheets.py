"""The sheet of a report: which pictures there are for what was recorded."""

from gradscope.report.html.module_columns import module_columns
from gradscope.report.html.picture import Picture, Sheet
from gradscope.report.html.tables import parameter_table, tensor_table
from gradscope.report.html.words import words_of
from gradscope.report.model import Report


def sheet_of(report: Report, title: str | None = None) -> Sheet:
    """Return the sheet of a report, under its target's name or another title."""
    pictures = (parameter_table(report), tensor_table(report))
    return Sheet(
        title=title or report.target.name,
        words=words_of(report),
        pictures=tuple(picture for picture in pictures if isinstance(picture, Picture)),
        modules=module_columns(report),
    )
