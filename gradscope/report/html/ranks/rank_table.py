"""The ranks of a job side by side, and the findings that only some of them show."""

from collections.abc import Iterator

from gradscope.analysis.job_summary import RankRow
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.phrasing import aligned, counted
from gradscope.report.html.phrasing import SummaryCell, SummaryTable
from gradscope.report.run.document import own_findings, remarks, telling_rows

_SHOWN = 64
"""Number of ranks up to which each has a row; otherwise only those that differ from the first."""


def rank_tables(report: Report) -> tuple[SummaryTable, ...]:
    """Return a row for each rank; none outside of a job of several."""
    job = report.job
    if job is None or not job.is_joined:
        return ()
    rows = job.rows if len(job.rows) <= _SHOWN else telling_rows(job, report)[:_SHOWN]
    hidden = len(job.rows) - len(rows)
    parts = [*remarks(job, report.target.root)]
    if hidden:
        parts.append(f"{counted(hidden, 'more rank')}: gradscope report --output-format json.")
    return (
        SummaryTable(
            title="Ranks",
            header=("rank", "host", "steps", "passes", "last loss", "ended", "findings"),
            rows=tuple(tuple(_cells(row, report)) for row in rows),
            caption=" ".join(parts),
        ),
    )


def _cells(row: RankRow, report: Report) -> Iterator[SummaryCell]:
    host = "" if report.job is None or len({one.host for one in report.job.rows}) == 1 else row.host
    at = f" at {shown_site(row.site, report.target.root)}" if row.site is not None else ""
    is_fine = row.state == "finished"
    yield SummaryCell(text=f"{row.rank}", is_number=True, is_strong=True)
    yield SummaryCell(text=host)
    yield SummaryCell(text=f"{row.steps:,}", is_number=True)
    yield SummaryCell(text=f"{row.passes:,}", is_number=True)
    yield SummaryCell(text="" if row.loss is None else aligned(row.loss), is_number=True)
    yield SummaryCell(
        text=row.what if is_fine else f"{row.what}{at}", style="short" if is_fine else "error"
    )
    yield SummaryCell(text=", ".join(dict.fromkeys(own_findings(row.rank, report))), style="code")
