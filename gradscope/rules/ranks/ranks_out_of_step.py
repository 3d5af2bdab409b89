"""GS806: ranks that make different passes while the others wait."""

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import ClassVar

from gradscope.analysis.ranks.job import Job, Rank, RankState, endings
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
        that skips a branch of the model, whose gradients DDP waits for; ranks that call different
        modules of an FSDP2 model; a collective that only some ranks start, such as one that gathers
        weights on rank 0.

    Why it matters:
        Collectives need every rank. The job raises, or hangs until a time-out, and the error names
        a healthy line of another rank. Where two modules have equally many weights, FSDP makes one
        weight of parts of both, and nothing is raised.

    How it is measured:
        DDP's exception on parameters that did not take part is reported directly. For a job that
        ended by a lost connection, a time-out or not at all, the numbers of backward passes of the
        ranks are compared. With equal numbers, so are the lines that started a collective. The
        modules that `fully_shard` shards over all ranks are compared in the order of their first
        calls, in each of the first passes.

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
    # A stopped job ends between two steps, where rules on unused gradients and on reach find
    # something.
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS305", "GS307", "GS506", "GS801")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding: the first cause stops the job."""
        job = context.shared(job_of)
        left = [r for r in job.ranks if r.ending is not None and _UNREDUCED in r.ending.message]
        if left:
            yield self._unreached(context, job, left[0])
        elif job.is_joined:
            other = list(self._other_order(context, job))
            # Another order of modules explains uneven passes, and these explain a collective that
            # was started alone.
            yield from other or list(self._uneven(context, job)) or self._alone(context, job)

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
            related=[
                (forward_site(rank), "the forward is here"),
                (backward_site(rank), "the backward is here"),
                *((rank.site(one.site), "the model is wrapped here") for one in rank.wrapped),
            ],
            names=names,
            evidence={"backward_passes": rank.backward_count},
            step=rank.step_count,
            ranks=[rank.number],
        )

    def _other_order(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if ranks gather the weights of different modules at the same time."""
        names_of = {rank.number: frozenset(rank.placements) for rank in job.ranks}
        if job.is_pipelined or len(set(names_of.values())) > 1:
            return  # stages have modules of their own
        passes = [{one.number: one for one in rank.passes if one.gathers} for rank in job.ranks]
        common = sorted(set(passes[0]).intersection(*passes[1:]))
        wrong = [at for at in common if len({column[at].gathers for column in passes}) > 1]
        if not wrong:
            return
        orders = [column[wrong[0]].gathers for column in passes]
        first = next(at for at, codes in enumerate(zip_longest(*orders)) if len(set(codes)) > 1)
        called = [order[first] if first < len(order) else None for order in orders]
        calls = [_sharded_calls(rank) for rank in job.ranks]
        found = [
            known.get(code) for known, code in zip(calls, called, strict=True) if code is not None
        ]
        named = [one for one in found if one is not None]
        names = list(dict.fromkeys(name for name, _ in named))
        main = next((site for _, site in named if site is not None), None) or forward_site(
            job.first
        )
        number = len(job.ranks)
        yield self.finding(
            context,
            message=(
                f"in backward pass {wrong[0]:,} the {number} ranks do not call the same modules: "
                f"FSDP gathers the weights of {' and '.join(names[:3])} at the same time"
            ),
            remedy="call the same modules in the same order on all ranks: share what decides on it",
            site=main,
            related=[
                *((site, "the other module is called here") for _, site in named),
                (forward_site(job.first), "the forward is here"),
                (backward_site(job.first), "the backward is here"),
            ],
            names=names,
            evidence={"passes_concerned": len(wrong), "passes_compared": len(common)},
            count=len(wrong),
            step=passes[0][wrong[0]].step,
            ranks=[rank.number for rank in job.ranks],
        )

    def _uneven(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        states = {one.rank: one.state for one in endings(job)}
        counts = {rank.number: rank.backward_count for rank in job.ranks}
        fewest, most = min(counts.values()), max(counts.values())
        # A rank that raised an exception of its own has fewer passes because of it.
        if fewest == most or "failed" in states.values():
            return
        # A job that ended well may have uneven passes, as under `model.join()`.
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
            related=[
                *((site, "a rank can leave or skip here") for site in leaves[1:6]),
                *((site, "only some ranks start this collective") for site in alone),
                (main, "the backward is here"),
                (forward_site(waiting), "the forward is here"),
                *((_raised_at(rank), "a rank waited here") for rank in job.ranks),
                *((site, "the data is loaded here") for site in first.lines("loader")),
            ],
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
                related=[
                    *((_raised_at(rank), "another rank waited here") for rank in others),
                    (backward_site(one.rank), "the backward is here"),
                    (step_site(one.rank), "the step is here"),
                ],
                evidence={"ranks": len(one.ranks), "world_size": job.world_size},
                step=one.event.step,
                ranks=one.ranks,
            )
            return


def _sharded_calls(rank: Rank) -> dict[int, tuple[str, Site | None]]:
    """Return name and line of the modules that FSDP2 shards, by their codes."""
    return {
        int(dict(event.numbers)["code"]): (event.subject, rank.site(event.site))
        for event in rank.events.get("sharded-call", ())
    }


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
    # DDP's exception counts the parameters that it reduces, in the order of the model.
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
