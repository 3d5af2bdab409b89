"""What reports say of the ranks of a job, whatever the format."""

from collections.abc import Iterator

from gradscope.analysis.folding import joined_numbers
from gradscope.analysis.job_summary import JobSummary, RankRow
from gradscope.analysis.view import shown_site
from gradscope.report.number_format import number

COLUMNS = ("rank", "steps", "backward passes", "last loss", "ended")


def cells(row: RankRow, root: str) -> tuple[str, ...]:
    """Return the cells of a rank under `COLUMNS`."""
    at = f" at {shown_site(row.site, root)}" if row.site is not None else ""
    ended = row.what if row.state == "finished" else f"{row.what}{at}"
    loss = "" if row.loss is None else number(row.loss)
    return (str(row.rank), f"{row.steps:,}", f"{row.passes:,}", loss, ended)


def remarks(job: JobSummary, root: str) -> Iterator[str]:
    """Yield sentences about the job: missing ranks, the first failure, the global norm."""
    if job.missing and job.is_joined:
        yield f"No recording of rank {joined_numbers(job.missing)} was given."
    if job.failure is not None and job.is_joined:
        at = f" at {shown_site(job.failure.site, root)}" if job.failure.site else ""
        yield f"Rank {job.failure.rank} failed first{at}: {job.failure.what}."
    if job.norms:
        first, last = job.norms[0], job.norms[-1]
        text = f"Global gradient norm over all ranks: {number(first.norm)} at step {first.step:,}"
        if last is not first:
            text += f", {number(last.norm)} at step {last.step:,}"
        yield f"{text}."
    elif job.sharded:
        yield (
            f"{job.sharded:,} parameters are sharded: their norms below are those of this rank's "
            "part."
        )
