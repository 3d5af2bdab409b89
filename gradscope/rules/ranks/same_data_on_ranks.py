"""GS807: ranks that train on the same batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.job import Job
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import SINGLE, forward_site, is_in_job, job_of, lines
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SameDataOnRanks(Rule):
    """Ranks train on the same batches.

    What it finds:
        Data-parallel ranks whose batches are equal, for example because the loader has no
        DistributedSampler, or all ranks seed the generator of their data alike.

    Why it matters:
        N ranks do the work of one: the average of equal gradients is that gradient. The training is
        as slow as on one device, and costs N times as much.

    How it is measured:
        Each rank records a digest of the model's inputs in its first backward passes. The rule
        compares them pass by pass.

    How to fix it:
        Give the loader a DistributedSampler, or make the data from the number of the rank.

    When it may be wrong:
        If the job is a test that overfits one batch on purpose.

    Source:
        torch documentation of DistributedSampler.
    """

    code: ClassVar[str] = "GS807"
    name: ClassVar[str] = "same-data-on-ranks"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    passes: int = 3
    """Minimum number of backward passes. Chosen: one or two batches may be equal by chance."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether the process was in a process group."""
        return is_in_job(context)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why ranks cannot be compared, None where they can."""
        return None if context.shared(job_of).is_joined else SINGLE

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if some ranks have equal batches in all passes."""
        job = context.shared(job_of)
        alike = self._alike(job) if job.is_data_parallel else []
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
            ),
            remedy=(
                "give the loader a DistributedSampler"
                if loaders and not samplers
                else "give the sampler the number of the rank, and that of all ranks"
                if samplers
                else "draw the data of each rank from a seed that includes its number"
            ),
            site=main,
            related=lines(
                context,
                main,
                [
                    *((site, "a loader is made here") for site in loaders[:3]),
                    *((site, "random numbers are seeded here") for site in seeds[:4]),
                    (forward_site(first), "the batches are used here"),
                ],
            ),
            evidence={"passes_compared": compared, "ranks_alike": len(alike)},
            count=compared,
            ranks=alike,
        )

    def _alike(self, job: Job) -> list[int]:
        """Return the ranks whose batches are equal to those of another rank."""
        groups: dict[tuple[str, ...], list[int]] = {}
        length = min(len(rank.passes) for rank in job.ranks)
        for rank in job.ranks:
            digests = tuple(one.digest or "" for one in rank.passes[:length])
            if sum(map(bool, digests)) >= self.passes:
                groups.setdefault(digests, []).append(rank.number)
        return max(groups.values(), key=len, default=[])


def _wrong_samplers(job: Job) -> list[Site]:
    """Return the lines of samplers that give the same part of the data to several ranks."""
    found: dict[Site, set[tuple[tuple[str, float], ...]]] = {}
    for rank, event in job.events("sampler"):
        site = rank.site(event.site)
        if site is not None:
            found.setdefault(site, set()).add(event.numbers)
    return [site for site, numbers in found.items() if len(numbers) < len(job.ranks)]


def _data_seed(seeds: list[Site]) -> Site | None:
    """Return the line that seeds a separate generator, as data usually have, or the last one."""
    own = [site for site in seeds if "Generator" in site.source or "rng" in site.source]
    return next(iter(own), None) or (seeds[-1] if seeds else None)
