"""GS806: ranks that make different passes while the others wait."""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.analysis.job import Job, Rank, RankState, endings
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    JobRule,
    JoinedEvent,
    backward_site,
    forward_site,
    job_of,
    joined_events,
    lines,
    on_ranks,
    step_site,
)

_UNREDUCED = "Expected to have finished reduction in the prior iteration"
_INDICES = re.compile(r"did not receive grad(?:ient)? for rank \d+: ((?:\d+ ?)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksOutOfStep(JobRule):
    """Ranks make different numbers of passes, or reach different parameters.

    What it finds:
        A rank that skips a backward or leaves the loop early while the others wait for it; a rank
        that skips a branch of the model, whose gradients DDP waits for; a collective that only some
        ranks start, such as one that gathers weights on rank 0.

    Why it matters:
        Collectives need every rank. The job raises, or hangs until a time-out, and the error names
        a healthy line of another rank.

    How it is measured:
        DDP's exception on parameters that did not take part is reported directly. For a job that
        ended by a lost connection, a time-out or not at all, the numbers of backward passes of the
        ranks are compared. With equal numbers, so are the lines that started a collective.

    How to fix it:
        Let every rank make the same calls. Pass `find_unused_parameters=True` for branches, and use
        `model.join()` for uneven inputs.

    When it may be wrong:
        If the rank with fewer passes was killed by something else, such as the operating system.

    Source:
        torch issue 43259, and the documentation of `torch.distributed.algorithms.join`.
    """

    code: ClassVar[str] = "GS806"
    name: ClassVar[str] = "ranks-out-of-step"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS305", "GS307", "GS506", "GS801")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding: the first cause stops the job."""
        job = context.shared(job_of)
        left = [r for r in job.ranks if r.ending is not None and _UNREDUCED in r.ending.message]
        if left:
            yield self._unreached(context, job, left[0])
        elif job.is_joined:
            yield from list(self._uneven(context, job)) or self._alone(context, job)

    def _unreached(self, context: RuleContext, job: Job, rank: Rank) -> Finding:
        names = _names(rank)
        what = ", ".join(names[:3]) or "some parameters"
        raised = _raised_at(rank)
        main = raised or forward_site(rank)
        return self.finding(
            context,
            message=(
                f"rank {rank.number} leaves {what} out of its loss: DDP waits for their gradients"
            ),
            remedy="use every parameter on every rank, or pass find_unused_parameters=True to DDP",
            site=main,
            related=lines(
                context,
                main,
                [
                    (forward_site(rank), "the forward is here"),
                    (backward_site(rank), "the backward is here"),
                    *((rank.site(one.site), "the model is wrapped here") for one in rank.wrapped),
                ],
            ),
            names=names,
            evidence={"backward_passes": rank.backward_count},
            step=rank.step_count,
            ranks=[rank.number],
        )

    def _uneven(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        states = {one.rank: one.state for one in endings(job)}
        counts = {rank.number: rank.backward_count for rank in job.ranks}
        fewest, most = min(counts.values()), max(counts.values())
        if fewest == most or "failed" in states.values():
            return
        if not {"consequence", "lost"} & set(states.values()) or not job.is_data_parallel:
            return
        behind = [rank for rank in job.ranks if counts[rank.number] == fewest]
        first = behind[0]
        if states[first.number] == "lost":
            return  # it was killed
        waiting = next(rank for rank in job.ranks if counts[rank.number] == most)
        main = backward_site(waiting) or step_site(waiting)
        leaves = [site for site in first.lines("written-leave") if _is_near(site, main)]
        alone = [one.site for one in _alone(job, states) if first.number in one.ranks]
        leaves = leaves or [site for site in alone if site is not None]
        yield self.finding(
            context,
            message=(
                f"rank {first.number} makes {fewest:,} backward passes, rank {waiting.number} "
                f"{most:,}: it waits for the others"
            ),
            remedy="let every rank make the same number of passes, or use model.join()",
            site=leaves[0] if leaves else main,
            related=lines(
                context,
                leaves[0] if leaves else main,
                [
                    *((site, "a rank can leave or skip here") for site in leaves[1:6]),
                    *((site, "only some ranks start this collective") for site in alone),
                    (main, "the backward is here"),
                    (forward_site(waiting), "the forward is here"),
                    *((_raised_at(rank), "a rank waited here") for rank in job.ranks),
                    *((site, "the data is loaded here") for site in first.lines("loader")),
                ],
            ),
            evidence={"fewest_passes": fewest, "most_passes": most},
            step=first.step_count,
            ranks=[rank.number for rank in behind],
        )

    def _alone(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding on a collective that some ranks never start."""
        states = {one.rank: one.state for one in endings(job)}
        if "failed" in states.values() or job.missing:
            return
        for one in _alone(job, states):
            others = [rank for rank in job.ranks if rank.number not in one.ranks]
            yield self.finding(
                context,
                message=(
                    f"{one.event.subject}() runs{on_ranks(one.ranks, job)} only: "
                    f"rank {others[0].number} is elsewhere, and both wait"
                ),
                remedy="start each collective on every rank, outside of `if rank == 0`",
                site=one.site,
                related=lines(
                    context,
                    one.site,
                    [
                        *((_raised_at(rank), "another rank waited here") for rank in others),
                        (backward_site(one.rank), "the backward is here"),
                        (step_site(one.rank), "the step is here"),
                    ],
                ),
                evidence={"ranks": len(one.ranks), "world_size": job.world_size},
                step=one.event.step,
                ranks=one.ranks,
            )
            return


def _alone(job: Job, states: Mapping[int, RankState]) -> Iterator[JoinedEvent]:
    """Yield the collectives that only some ranks started, if the others waited elsewhere."""
    for one in joined_events(job, "collective"):
        others = [rank for rank in job.ranks if rank.number not in one.ranks]
        # A rank without an ending may have been killed on its way to the collective.
        if others and all(states[rank.number] == "consequence" for rank in others):
            yield one


def _names(rank: Rank) -> list[str]:
    """Return the parameters that DDP's exception names by their numbers."""
    message = "" if rank.ending is None else rank.ending.message
    found = _INDICES.search(message)
    reduced = [name for name, one in rank.placements.items() if one.is_reduced]
    if found is None:
        return _unreached(rank)
    numbers = [int(text) for text in found[1].split()]
    return [reduced[number] for number in numbers if number < len(reduced)]


def _unreached(rank: Rank) -> list[str]:
    """Return the parameters without a gradient at the last measured step."""
    stats = rank.recording.parameter_stats
    last = max((stat.step for stat in stats), default=None)
    parameters = rank.recording.parameters
    return [
        parameters[stat.parameter].name
        for stat in stats
        if stat.step == last and stat.reach == "none"
    ]


def _raised_at(rank: Rank) -> Site | None:
    ending = rank.ending
    if ending is None or not ending.file or ending.line is None:
        return None
    return Site(file=ending.file, line=ending.line, function="", source="")


def _is_near(site: Site, other: Site | None) -> bool:
    return other is not None and site.file == other.file
