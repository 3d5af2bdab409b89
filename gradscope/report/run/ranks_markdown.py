"""The ranks of a job in Markdown."""

from gradscope.analysis.report import Report
from gradscope.report.markdown_syntax import escape, prose, table
from gradscope.report.run.ranks_words import COLUMNS, cells, remarks


def ranks_blocks(report: Report) -> list[str]:
    """Return the section about the ranks; nothing outside of a job of several."""
    job = report.job
    if job is None or job.world_size == 1:
        return []
    root = report.target.root
    rows = [tuple(map(escape, cells(row, root))) for row in job.rows]
    sentences = [prose(remark) for remark in remarks(job, root)]
    return ["### Ranks", escape(job.title), table(COLUMNS, rows), *sentences]
