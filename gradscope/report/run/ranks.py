"""The ranks of a job, as blocks of a document."""

from collections.abc import Iterator

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.job_summary import JobSummary, RankRow
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.report.document import Block, Column, Inner, Points, Table, Value, Word, section
from gradscope.report.number_format import figure

_COLUMNS = (
    Column(title="rank", kind="number"),
    Column(title="steps", kind="number"),
    Column(title="backward passes", kind="number", rank=1),
    Column(title="last loss", kind="number"),
    Column(title="ended"),
)


def rank_sections(report: Report) -> Iterator[Block]:
    """Yield a row for every recorded rank of a job, and what is said of all."""
    job = report.job
    if job is None or job.world_size == 1:
        return
    told = tuple(remarks(job, report.target.root))
    blocks: list[Inner] = []
    if job.is_joined:
        rows = tuple(_row(row, report.target.root) for row in job.rows)
        blocks.append(Table(columns=_COLUMNS, rows=rows))
    if told:
        blocks.append(Points(told))
    yield from section("Ranks", blocks)


def _row(row: RankRow, root: str) -> tuple[Value, ...]:
    at = f" at {shown_site(row.site, root)}" if row.site is not None else ""
    ended = Word(row.what) if row.state == "finished" else Word(f"{row.what}{at}", "bad")
    return f"{row.rank}", f"{row.steps:,}", f"{row.passes:,}", row.loss, ended


def joined_text(job: JobSummary) -> str:
    """Return what of a joined report is of the job, and what of its first rank."""
    first = f"rank {job.rows[0].rank}"
    if job.is_joinable:
        return (
            f"Norms of parameters below are those of whole parameters, joined from all ranks. Loss,"
            f" events and tensors are those of {first}."
        )
    if job.sharded:
        return (
            f"{job.sharded:,} parameters are sharded: norms below are those of the part that "
            f"{first} holds. Loss, events and tensors are those of {first}, too."
        )
    return f"Curves, events and tensors below are those of {first}."


def remarks(job: JobSummary, root: str) -> Iterator[str]:
    """Yield sentences about the job: missing ranks, the first failure, the global norm."""
    if job.missing and job.is_joined:
        yield f"No recording of rank {joined_numbers(job.missing)} was given."
    if job.failure is not None and job.is_joined:
        at = f" at {shown_site(job.failure.site, root)}" if job.failure.site else ""
        yield f"Rank {job.failure.rank} failed first{at}: {job.failure.what}."
    if job.norms:
        first, last = job.norms[0], job.norms[-1]
        text = f"Global gradient norm over all ranks: {figure(first.norm)} at step {first.step:,}"
        if last is not first:
            text += f", {figure(last.norm)} at step {last.step:,}"
        yield f"{text}."
    if job.is_joined:
        yield joined_text(job)
    elif job.sharded:
        yield (
            f"{job.sharded:,} parameters are sharded: their norms below are those of this rank's "
            "part."
        )
