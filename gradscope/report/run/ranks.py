"""The ranks of a job in the text report."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.report.page import Page
from gradscope.report.run.ranks_words import COLUMNS, cells, remarks


def ranks_section(report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield a row for every recorded rank of a job, and what is to be said of all."""
    job = report.job
    if job is None or job.world_size == 1:
        return
    told = list(remarks(job, page.root))
    if not (job.is_joined or told):
        return
    yield Text("Ranks", style="bold")
    if job.is_joined:
        table = Table.grid(padding=(0, 2, 0, 0))
        for position, _ in enumerate(COLUMNS):
            is_text = position == len(COLUMNS) - 1
            table.add_column(justify="left" if is_text else "right", overflow="fold")
        table.add_row(*(Text(name, style="dim") for name in COLUMNS))
        for row in job.rows:
            style = "" if row.state == "finished" else "red"
            table.add_row(*(page.text(cell, style) for cell in cells(row, page.root)))
        yield Padding(table, (0, 0, 0, 2))
    for remark in told:
        yield Padding(page.text(remark), (0, 0, 0, 2))
