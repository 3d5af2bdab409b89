"""The columns of a line of code."""

from gradscope.analysis.view import shown_path
from gradscope.export.table import Kind, Row
from gradscope.recording.records import Site

PLACE_COLUMNS: tuple[tuple[str, Kind], ...] = (
    ("file", "text"),
    ("line", "integer"),
    ("function", "text"),
    ("source", "text"),
)


def place_cells(site: Site | None, root: str) -> Row:
    """Return the cells of `PLACE_COLUMNS`; all None without a line."""
    if site is None:
        return (None, None, None, None)
    return (shown_path(site.file, root), site.line, site.function, site.source)
