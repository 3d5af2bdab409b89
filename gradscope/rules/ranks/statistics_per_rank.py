"""GS811: batch normalization with the statistics of each rank."""

import re
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.norms import agree
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import JobRule, JoinedEvent, job_of, joined_events

_STATISTICS = re.compile(r"mean|var(iance)?$|std|running_|square|moment", re.IGNORECASE)
"""Names of buffers that hold statistics of the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPerRank(JobRule):
    """Batch normalization uses few rows per rank, or buffers that differ between ranks.

    What it finds:
        Batch normalization in a DDP model with `broadcast_buffers=False`, whose running statistics
        differ between ranks; or with few rows per rank. Other buffers that differ between ranks,
        such as a codebook or a moving average, where nothing broadcasts them.

    Why it matters:
        The evaluation depends on the rank. Statistics of few rows are noisy, and differ from those
        of the whole batch.

    How it is measured:
        The modules of the model when it is wrapped, and the rows of its input. With the recordings
        of several ranks, the norms of the buffers are compared.

    How to fix it:
        Convert the model: `nn.SyncBatchNorm.convert_sync_batchnorm(model)`. Leave
        `broadcast_buffers` on.

    When it may be wrong:
        If the batch normalization is frozen or in eval mode, or if each rank has buffers of its own
        on purpose.

    Source:
        torch documentation of SyncBatchNorm and of DistributedDataParallel.
    """

    code: ClassVar[str] = "GS811"
    name: ClassVar[str] = "statistics-per-rank"
    level: ClassVar[Severity] = "note"

    rows: float = 8
    """Number of rows per rank below which statistics are noisy. Source: group normalization paper,
    figure 1: the error rises below 8."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such model."""
        job = context.shared(job_of)
        rank = job.first
        yield from self._apart(context, job)
        for model in rank.wrapped:
            options = dict(model.options)
            if not options.get("batch_norms"):
                continue
            wrapped, made = rank.site(model.site), rank.site(model.batch_norm)
            rows = _rows(rank)
            if rows is not None:
                context.measured(self.code, "rows_per_rank", rows, self.rows, fires="below")
            # DDP sends rank 0's buffers to all ranks before each forward, unless this option is
            # off.
            is_apart = not options.get("broadcast_buffers", 1.0)
            if not is_apart and (rows is None or rows >= self.rows):
                continue
            main = wrapped if is_apart else made or wrapped
            count = int(options["batch_norms"])
            yield self.finding(
                context,
                message=(
                    f"running statistics of {count} batch normalizations differ between ranks: "
                    "broadcast_buffers is off"
                    if is_apart
                    else f"{count} batch normalizations see {rows} rows per rank"
                ),
                remedy="use nn.SyncBatchNorm.convert_sync_batchnorm(model) before wrapping it",
                site=main,
                related=[(made, "a batch normalization is made here"), (wrapped, "wrapped here")],
                evidence={"batch_norms": count, "rows_per_rank": rows, "limit": self.rows},
                count=count,
                ranks=[one.number for one in job.ranks],
            )

    def _apart(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding on buffers that differ, and that no batch normalization explains."""
        if any(dict(model.options).get("batch_norms") for model in job.first.wrapped):
            return
        reduced = (one for _, one in job.events("buffer-reduced"))
        if any(one.step or one.count > job.first.step_count for one in reduced):
            return  # in each step: they are measured between an update and its reduction
        found = [one for one in joined_events(job, "buffer") if _differs(job, one)]
        is_by_hand = job.is_by_hand and not job.first.wrapped
        if is_by_hand:
            # Other buffers, such as a queue or a hidden state, may be those of a rank.
            found = [one for one in found if _STATISTICS.search(one.event.subject)]
        if not found:
            return
        wrapped = [job.first.site(model.site) for model in job.first.wrapped]
        main = next((site for site in wrapped if site), None) or found[0].site
        names = [one.event.subject for one in found]
        shown = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        yield self.finding(
            context,
            severity="warning" if is_by_hand else self.level,
            message=f"the buffers {shown} differ between ranks: nothing broadcasts them",
            remedy="reduce what updates the buffers, or let DDP broadcast them",
            site=main,
            related=[
                *((one.site, "a module with such buffers is made here") for one in found),
                *((one, "tensors are written here") for one in _written(job)),
            ],
            evidence={"buffers_apart": len(found)},
            count=len(found),
            ranks=[one.number for one in job.ranks],
        )


def _differs(job: Job, one: JoinedEvent) -> bool:
    """Return whether a buffer differs between ranks that measured it at the same step."""
    same = [event for rank, event in job.events("buffer") if event.subject == one.event.subject]
    norms = [dict(event.numbers)["norm"] for event in same]
    # Ranks that have measured a buffer at different times may differ by an update alone.
    return len({event.count for event in same}) == 1 < len(same) and not agree(norms)


def _written(job: Job) -> list[Site]:
    return job.first.lines("written-weight")[:6]


def _rows(rank: Rank) -> int | None:
    known = [one.rows for one in rank.passes if one.rows is not None]
    return min(known, default=None)
