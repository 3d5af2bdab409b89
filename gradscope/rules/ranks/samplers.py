"""GS807 and GS809: samplers that give ranks the same data, or each epoch the same order."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from gradscope.analysis.ranks.job import Job
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import RankEvent, RankPass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule, related_line
from gradscope.rules.helpers.jobs import (
    JobRule,
    JoinedEvent,
    forward_site,
    has_other_ranks,
    job_of,
    joined_events,
)
from gradscope.rules.needs import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class SameDataOnRanks(JobRule):
    """Ranks train on the same batches, or on shares that overlap.

    What it finds:
        Data-parallel ranks whose batches are equal, for example because the loader has no
        DistributedSampler, or all ranks seed the generator of their data alike. Also samplers that
        each rank gives a seed of its own: every rank takes its share of another order, so that some
        samples come twice in an epoch and others never. Also samplers over another part of the data
        on each rank, as random_split without a common seed gives.

    Why it matters:
        N ranks do the work of one: the average of equal gradients is that gradient. The training is
        as slow as on one device, and costs N times as much.

    How it is measured:
        Each rank records a digest of the model's inputs, and of their rows, in its first backward
        passes. The rule compares them pass by pass: the batches of two ranks are the same if they
        have nearly all rows in common, in any order. It compares the seeds of samplers that were
        made at one line, and the indices of the subsets that they draw from.

    How to fix it:
        Give the loader a DistributedSampler, or make the data from the number of the rank. Give
        the samplers of all ranks the same seed. Split the data alike on all ranks.

    When it may be wrong:
        If the job is a test that overfits one batch on purpose.

    Source:
        torch documentation of DistributedSampler.
    """

    code: ClassVar[str] = "GS807"
    name: ClassVar[str] = "same-data-on-ranks"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (has_other_ranks,)

    passes: int = 3
    """Minimum number of backward passes. Chosen: one or two batches may be equal by chance."""

    rows: float = 0.8
    """Share of its rows that a batch has in common with that of another rank, 0 to 1, in every
    pass. Chosen: shares that are shifted by one row have nearly all, other draws of a small set of
    data fewer."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if some ranks have equal batches in all passes, or shares overlap."""
        job = context.shared(job_of)
        yield from self._overlapping(context, job)
        alike = self._alike(job) if job.is_data_parallel else []
        share = 1.0
        # Equal digests of whole batches are certain and cheap. Rows are compared only where no
        # batches are equal.
        if len(alike) < 2 and job.is_data_parallel:
            alike, share = self._sharing(context, job)
        if len(alike) <= _partners(job):
            alike = []  # they hold parts of one model
        digests = min(sum(one.digest is not None for one in rank.passes) for rank in job.ranks)
        context.measured(self.code, "passes_compared", digests, self.passes)
        if len(alike) < 2:
            return
        first = next(rank for rank in job.ranks if rank.number == alike[0])
        compared = sum(one.digest is not None for one in first.passes)
        loaders = [
            site
            for event in first.events.get("loader", ())
            if not dict(event.numbers).get("distributed")
            and (site := first.site(event.site)) is not None
        ]
        seeds = first.lines("written-seed")
        samplers = _wrong_samplers(job)
        main = next(iter(samplers or loaders), None) or _data_seed(seeds) or forward_site(first)
        yield self.finding(
            context,
            message=(
                f"ranks {', '.join(map(str, alike))} train on the same batches, in all {compared} "
                "passes compared"
                + (f": at least {share:.0%} of the rows are equal" if share < 1 else "")
            ),
            remedy=(
                "give the loader a DistributedSampler"
                if loaders and not samplers
                else "give the sampler the number of the rank, and that of all ranks"
                if samplers
                else "draw the data of each rank from a seed that includes its number"
            ),
            site=main,
            related=[
                *((site, "a loader is made here") for site in loaders[:3]),
                *((site, "random numbers are seeded here") for site in seeds[:4]),
                (forward_site(first), "the batches are used here"),
            ],
            evidence={"passes_compared": compared, "ranks_alike": len(alike)},
            count=compared,
            ranks=alike,
        )

    def _overlapping(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding on samplers that take their shares of another order, or of other data."""
        for one in joined_events(job, "sampler") if job.is_data_parallel else ():
            known = [dict(event.numbers) for event in _made_at(job, one)]
            # Without shuffling, `DistributedSampler` does not read its seed.
            seeds = {numbers.get("seed") for numbers in known if numbers.get("shuffle")}
            subsets = {numbers.get("subset") for numbers in known}
            sizes = {numbers.get("ranks") for numbers in known}
            # A sampler with another number of ranks is for a part of the job, whose data may be
            # another.
            if len(known) < len(job.ranks) or sizes != {float(job.world_size)}:
                continue
            if max(len(seeds), len(subsets)) < 2:
                continue
            is_split = len(subsets) > 1
            yield self.finding(
                context,
                message=(
                    "the DistributedSampler of each rank draws from another part of the data: some "
                    "samples are in no share, and others may be in several"
                    if is_split
                    else "each rank shuffles its DistributedSampler by a seed of its own: their "
                    "shares overlap, and some samples are in none"
                ),
                remedy=(
                    "split the data alike on all ranks: random_split(data, sizes, "
                    "torch.Generator().manual_seed(0))"
                    if is_split
                    else "give the samplers of all ranks the same seed"
                ),
                site=one.site,
                related=[(forward_site(job.first), "batches are used")],
                evidence={
                    **({"parts": len(subsets)} if is_split else {"seeds": len(seeds)}),
                    "ranks": job.world_size,
                },
                count=max(len(seeds), len(subsets)),
                ranks=one.ranks,
            )

    def _sharing(self, context: RuleContext, job: Job) -> tuple[list[int], float]:
        """Return ranks that have most rows of each batch in common with the next, and the share."""
        alike: list[int] = []
        lowest = 1.0
        # Shares that are shifted by some rows overlap with those of the next rank most.
        for one, other in pairwise(job.ranks):
            share = min(
                (common_rows(*both) for both in zip(one.passes, other.passes, strict=False)),
                default=0.0,
            )
            length = min(len(one.passes), len(other.passes))
            if length < self.passes:
                continue
            context.measured(self.code, "share_of_rows", share, self.rows)
            if share >= self.rows:
                alike += [rank.number for rank in (one, other) if rank.number not in alike]
                lowest = min(lowest, share)
        return alike, lowest

    def _alike(self, job: Job) -> list[int]:
        """Return the ranks whose batches are equal to those of another rank."""
        groups: dict[tuple[str, ...], list[int]] = {}
        length = min(len(rank.passes) for rank in job.ranks)
        for rank in job.ranks:
            digests = tuple(one.digest or "" for one in rank.passes[:length])
            if sum(map(bool, digests)) >= self.passes:
                groups.setdefault(digests, []).append(rank.number)
        return max(groups.values(), key=len, default=[])


def common_rows(one: RankPass, other: RankPass) -> float:
    """Return the share of rows that two batches have in common, 0 to 1; 0 if it is unknown."""
    rows, others = set(one.row_digests), set(other.row_digests)
    most = max(len(one.row_digests), len(other.row_digests))
    # Rows that repeat within a batch, such as those of few categories, may be equal by chance.
    if min(len(rows), len(others)) < 4 or max(map(_repeats, (one, other))) > 0.1:
        return 0.0
    return len(rows & others) / most


def _repeats(one: RankPass) -> float:
    """Return the share of rows of a batch that repeat others, 0 to 1."""
    return 1 - len(set(one.row_digests)) / len(one.row_digests)


def _wrong_samplers(job: Job) -> list[Site]:
    """Return the lines of samplers that give the same part of the data to several ranks."""
    found: dict[Site, set[tuple[float | None, float | None]]] = {}
    for rank, event in job.events("sampler"):
        site, numbers = rank.site(event.site), dict(event.numbers)
        if site is not None:
            found.setdefault(site, set()).add((numbers.get("rank"), numbers.get("ranks")))
    return [site for site, numbers in found.items() if len(numbers) < len(job.ranks)]


def _partners(job: Job) -> int:
    """Return how many ranks there are for each rank of a group that averages."""
    copies = max((one.copies for one in job.first.placements.values()), default=0)
    return job.world_size // copies if copies > 1 else 1


def _made_at(job: Job, one: JoinedEvent) -> list[RankEvent]:
    """Return the samplers of all ranks that were made at one line."""
    return [event for rank, event in job.events("sampler") if rank.site(event.site) == one.site]


def _data_seed(seeds: list[Site]) -> Site | None:
    """Return the line that seeds a separate generator, as data usually have, or the last one."""
    own = [site for site in seeds if "Generator" in site.source or "rng" in site.source]
    return next(iter(own), None) or (seeds[-1] if seeds else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOrderEveryEpoch(JobRule):
    """A DistributedSampler shuffles alike in every epoch.

    What it finds:
        A `DistributedSampler` with `shuffle=True` that is iterated again with the same epoch,
        because `set_epoch` is not called.

    Why it matters:
        Its order depends on the seed and the epoch alone. Each rank sees the same examples in the
        same batches in every epoch.

    How it is measured:
        The epoch of the sampler at each iteration that training follows.

    How to fix it:
        Call `sampler.set_epoch(epoch)` before each epoch.

    Fix safety:
        Safe. `sampler.set_epoch(epoch)` is inserted before the loop over batches, if it is in a
        loop `for epoch in range(…)`, with a progress bar or without.

    When it may be wrong:
        If the same order is wanted, for example to repeat a run.

    Source:
        torch documentation of DistributedSampler.
    """

    code: ClassVar[str] = "GS809"
    name: ClassVar[str] = "same-order-every-epoch"
    level: ClassVar[Severity] = "warning"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", line=related_line)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every such sampler."""
        job = context.shared(job_of)
        for one in joined_events(job, "same-order"):
            epochs = int(one.number("alike") or 0)
            yield self.finding(
                context,
                message=f"the sampler gives the same order in {epochs} epochs",
                remedy="call sampler.set_epoch(epoch) before each epoch",
                site=one.site,
                related=[(site, "it is iterated here") for site in one.related],
                evidence={"epochs_alike": epochs, "epochs": one.number("epochs")},
                count=epochs,
                step=one.event.step,
                ranks=one.ranks,
            )
