"""The ranks of a job, as blocks of a document."""

from collections.abc import Iterator

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.job_summary import JobSummary, RankRow
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.phrasing import counted
from gradscope.report.document import Block, Column, Inner, Points, Table, Value, Word, section
from gradscope.report.number_format import figure

_COLUMNS = (
    Column(title="rank", kind="number"),
    Column(title="steps", kind="number"),
    Column(title="backward passes", kind="number", rank=1),
    Column(title="last loss", kind="number"),
    Column(title="ended"),
)

_SHOWN = 16
"""Number of ranks up to which each has a row; of more, those that differ from the first."""


def rank_sections(report: Report) -> Iterator[Block]:
    """Yield a row for every recorded rank of a job, and what is said of all."""
    job = report.job
    if job is None or job.world_size == 1:
        return
    told = tuple(remarks(job, report.target.root))
    blocks: list[Inner] = []
    if job.is_joined:
        shown = job.rows if len(job.rows) <= _SHOWN else telling_rows(job, report)[:_SHOWN]
        rows = tuple(_row(row, report.target.root) for row in shown)
        blocks.append(Table(columns=_COLUMNS, rows=rows))
        if (hidden := len(job.rows) - len(rows)) > 0:
            blocks.append(Points((Word(f"… {counted(hidden, 'more rank')}", "soft"),)))
    if told:
        blocks.append(Points(told))
    yield from section("Ranks", blocks)


def telling_rows(job: JobSummary, report: Report) -> list[RankRow]:
    """Return the first rank, and those that ended in another way or have findings of their own."""
    first = job.rows[0]
    return [
        row
        for row in job.rows
        if row is first
        or (row.state, row.steps, row.passes) != (first.state, first.steps, first.passes)
        or own_findings(row.rank, report)
    ]


def own_findings(rank: int, report: Report) -> list[str]:
    """Return the codes of findings that this rank shows, and not every rank."""
    count = 0 if report.job is None else len(report.job.rows)
    return [one.rule for one in report.findings if rank in one.ranks and len(one.ranks) < count]


def _row(row: RankRow, root: str) -> tuple[Value, ...]:
    at = f" at {shown_site(row.site, root)}" if row.site is not None else ""
    ended = Word(row.what) if row.state == "finished" else Word(f"{row.what}{at}", "bad")
    return f"{row.rank}", f"{row.steps:,}", f"{row.passes:,}", row.loss, ended


def part_text(job: JobSummary) -> str:
    """Return that norms of sharded parameters are those of a rank's part."""
    first = f"rank {job.rows[0].rank}"
    return (
        f"{counted(job.sharded, 'parameter')} sharded: norms of them are those of the part that "
        f"{first} holds."
    )


def remarks(job: JobSummary, root: str) -> Iterator[str]:
    """Yield sentences about the job: what is missing, the first failure, what norms are of."""
    if job.is_joined:
        yield from _of_several(job, root)
    if job.norms:
        first, last = job.norms[0], job.norms[-1]
        text = f"Global gradient norm over all ranks: {figure(first.norm)} at step {first.step:,}"
        if last is not first:
            text += f", {figure(last.norm)} at step {last.step:,}"
        yield f"{text}."
    if job.is_joinable:
        yield "Norms of parameters below are those of whole parameters, joined from all ranks."
    elif job.sharded:
        yield part_text(job)
    if job.is_joined:
        yield f"Loss, events and tensors below are those of rank {job.rows[0].rank}."


def _of_several(job: JobSummary, root: str) -> Iterator[str]:
    if job.missing:
        yield f"No recording of rank {joined_numbers(job.missing)} was given."
    if len(job.versions) > 1:
        yield f"Ranks were recorded by different versions of gradscope: {', '.join(job.versions)}."
    if job.outlines:
        yield (
            f"{counted(job.outlines, 'rank')} ended as others did, after the same events: only the "
            "rules about ranks judge them."
        )
    if job.failure is not None:
        at = f" at {shown_site(job.failure.site, root)}" if job.failure.site else ""
        yield f"Rank {job.failure.rank} failed first{at}: {job.failure.what}."
