"""GS801: replicas whose weights differ between ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.job import Job, Rank, first_failure
from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.recording.evidence.ranks import Moment, ParameterPlacement
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    SINGLE,
    backward_site,
    is_in_job,
    job_of,
    joined_events,
    lines,
    step_site,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why replicas part."""

    message: str
    remedy: str
    site: Site | None
    related: tuple[tuple[Site | None, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksApart(Rule):
    """Replicas of the same parameters differ between ranks.

    What it finds:
        Ranks that start with different weights, because each has its own seed or only one loaded a
        checkpoint; that step with different learning rates; or whose gradients are changed on each
        rank after the reduction, or omitted from a manual reduction. Also weights that the script
        changes on each rank.

    Why it matters:
        Data-parallel training assumes equal replicas. Gradients of different weights are averaged,
        and the result is the training of no model at all.

    How it is measured:
        Ranks record the norm of each weight and gradient at the same steps. The rule compares the
        norms of replicated parameters. It looks for the cause in what differs first: weights before
        the first step, learning rates, gradients after backward, or gradients at the step. With
        `--sync-checks N` ranks also compare digests of all bits in every Nth step. If only digests
        differ, the finding is a warning.

    How to fix it:
        Seed all ranks equally before the model is made, or broadcast from rank 0. Reduce what
        decides on the learning rate. Do not change reduced gradients with random numbers of a rank.

    When it may be wrong:
        If ranks train different models on purpose, which have parameters of the same names.

    Source:
        torch documentation of DistributedDataParallel. Limit: float32 norms of equal numbers differ
        by less than 1e-5.
    """

    code: ClassVar[str] = "GS801"
    name: ClassVar[str] = "ranks-apart"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    tolerance: float = AGREEMENT
    """Relative difference up to which replicas' norms count as equal. Chosen: float32 rounding."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether the process was in a process group."""
        return is_in_job(context)

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why ranks cannot be compared, None where they can."""
        job = context.shared(job_of)
        return None if job.is_joined or any(job.events("sync-difference")) else SINGLE

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the first difference."""
        job = context.shared(job_of)
        if not job.is_joined:
            yield from self._digests(context, job)
            return
        fewer = list(self._fewer_steps(context, job))
        yield from fewer
        names = _replicated(job)
        steps = job.common_steps("weight") if names else []
        # Once a rank has left a step out, weights and digests differ for this reason.
        for step in steps[:1] if fewer else steps:
            apart = self._differing(job, "weight", step, names)
            context.measured(self.code, "parameters_apart", len(apart), 1, step=step)
            if not apart:
                continue
            cause = self._cause(job, step, apart, names)
            if cause is not None:
                yield self._finding(context, job, step, apart, cause)
            return
        if not fewer:
            yield from self._digests(context, job)

    def _digests(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if only the digests of `--sync-checks` differ: by less than norms show.

        Other hardware may round otherwise, so this is no error.
        """
        found = min(job.events("sync-difference"), key=lambda one: one[1].step, default=None)
        if found is None:
            return
        rank, event = found
        numbers = dict(event.numbers)
        kind = "gradient" if numbers["is_gradient"] else "weight"
        site = rank.site(event.site)
        yield self.finding(
            context,
            severity="warning",
            message=(
                f"rank {rank.number} differs from rank 0 before step {event.step:,}: the digest of "
                f"the {kind} of {event.subject}"
            ),
            remedy="change replicas equally on all ranks, or reduce what decides on the change",
            site=site,
            names=[event.subject],
            evidence={"parameters_apart": int(numbers["parameters"])},
            count=int(numbers["parameters"]),
            step=event.step,
            ranks=[0, rank.number],
        )

    def _fewer_steps(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if a rank makes as many passes as the others, and fewer steps."""
        passes = {rank.backward_count for rank in job.ranks}
        steps = [rank.step_count for rank in job.ranks]
        if not job.is_data_parallel or len(passes) > 1 or len(set(steps)) == 1:
            return
        if first_failure(job) is not None:
            return  # a rank may have ended between backward and step
        most = job.ranks[steps.index(max(steps))]
        fewest = job.ranks[steps.index(min(steps))]
        site = step_site(most)
        yield self.finding(
            context,
            message=(
                f"rank {fewest.number} makes {min(steps):,} optimizer steps and rank "
                f"{most.number} {max(steps):,}, with equally many backward passes"
            ),
            remedy="step on every rank",
            site=site,
            related=lines(context, site, [(backward_site(most), "the backward is here")]),
            evidence={"fewest_steps": min(steps), "most_steps": max(steps)},
            count=max(steps) - min(steps),
            explains=("GS305", "GS307", "GS810"),
            ranks=[rank.number for rank in job.ranks],
        )

    def _finding(
        self, context: RuleContext, job: Job, step: int, names: Sequence[str], cause: _Cause
    ) -> Finding:
        values = [rank.squares("weight", step)[names[0]] ** 0.5 for rank in job.ranks]
        ranks = [rank.number for rank in job.ranks]
        return self.finding(
            context,
            message=(f"weights differ between ranks from step {step:,} on: {cause.message}"),
            remedy=cause.remedy,
            site=cause.site,
            related=lines(context, cause.site, cause.related),
            names=names,
            evidence={
                "parameters_apart": len(names),
                "smallest_norm": min(values),
                "largest_norm": max(values),
                "limit": self.tolerance,
            },
            count=len(names),
            step=step,
            ranks=ranks,
        )

    def _differing(self, job: Job, moment: Moment, step: int, names: Sequence[str]) -> list[str]:
        """Return the parameters whose numbers differ between ranks."""
        found = [rank.squares(moment, step) for rank in job.ranks]
        return [
            name
            for name in names
            if all(name in one for one in found)
            and not agree([one[name] for one in found], 2 * self.tolerance)
        ]

    def _cause(
        self, job: Job, step: int, apart: Sequence[str], names: Sequence[str]
    ) -> _Cause | None:
        if step == min(job.common_steps("weight")):
            return _beginning(job)
        rates = _rates(job, step)
        if rates is not None:
            return rates
        before = [one for one in job.common_steps("step") if one < step]
        uneven = [one for one in before if self._differing(job, "step", one, names)]
        if uneven:
            return self._gradients(job, uneven[0], names)
        return _after(job, step)

    def _gradients(self, job: Job, step: int, names: Sequence[str]) -> _Cause | None:
        """Return why the gradients that a step uses differ."""
        if job.is_by_hand:
            left = self._differing(job, "step", step, names)
            written = _lines(job, "written-gradient")
            if len(left) < len(names):
                what = f"the reduction by hand leaves out {left[0]}"
                site = next(iter(_reductions(job)), None) or step_site(job.first)
                others = [(one, "gradients are written here") for one in written]
                loops = _lines(job, "written-reduce")
                others = [*((one, "the loop that reduces is here") for one in loops), *others]
                return _Cause(what, "reduce the gradient of every parameter", site, tuple(others))
        elif self._differing(job, "backward", step, names):
            converted = _lines(job, "converted")
            if converted:
                return _Cause(
                    "the model is converted after DDP has wrapped it, which removes the hooks that"
                    " reduce its gradients",
                    "convert a copy of the model, or convert it before DDP wraps it",
                    converted[0],
                    tuple((one, "it is converted again") for one in converted[1:]),
                )
            hooks = _lines(job, "hook")
            wrapped = [job.first.site(one.site) for one in job.first.wrapped]
            site = next(iter((*hooks, *wrapped)), None) or step_site(job.first)
            return _Cause(
                "their gradients were not reduced",
                "let DDP reduce the gradients, or reduce each of them by hand",
                site,
                ((step_site(job.first), "the step that uses them"),),
            )
        written = _between(job)
        site = next(iter(written), None) or step_site(job.first)
        others = [(one, "gradients are written here") for one in written]
        others += [(one, "gradients are reduced here") for one in _reductions(job)]
        return _Cause(
            "gradients are changed on each rank between reduction and step",
            "change gradients before the reduction, or equally on all ranks",
            site,
            (*others, (step_site(job.first), "the step that uses them")),
        )


def _replicated(job: Job) -> list[str]:
    """Return the parameters that every rank has a replica of."""
    if not job.is_data_parallel or job.averages_weights:
        return []
    kinds = {"replicated", "local"} if job.is_by_hand else {"replicated"}
    return [
        name
        for name in job.shared_names
        if all(_is_replica(rank.placements[name], kinds, job) for rank in job.ranks)
    ]


def _is_replica(one: ParameterPlacement, kinds: set[str], job: Job) -> bool:
    """Return whether all ranks hold a parameter; stages of a pipeline may have equal names."""
    return one.kind in kinds and one.copies in (0, job.world_size)


def _beginning(job: Job) -> _Cause:
    """Return why ranks begin with different weights."""
    related: list[tuple[Site | None, str]] = []
    loads = [one for one in joined_events(job, "load") if len(one.ranks) < len(job.ranks)]
    seeds = [one for one in joined_events(job, "seed") if _differs(job, one.site)]
    models = [rank.index.site(m.site) for rank in job.ranks[:1] for m in rank.recording.modules]
    made = [site for site in dict.fromkeys(models) if site is not None][:4]
    for rank in job.ranks[:1]:
        related += [(rank.site(one.site), "the model is wrapped here") for one in rank.wrapped]
        related += [(site, "random numbers are seeded here") for site in rank.lines("written-seed")]
        related += [(site, "gradients are reduced here") for site in _reductions(job)]
    related += [(site, "a part of the model is made here") for site in made]
    related += [(step_site(job.first), "the first step is here")]
    if loads:
        return _Cause(
            f"only rank {loads[0].ranks[0]} loads weights",
            "load on every rank, or broadcast the weights from rank 0",
            loads[0].site,
            tuple(related),
        )
    site = seeds[0].site if seeds else next(iter(job.first.lines("written-seed")), None)
    site = site or next(iter(made), None) or step_site(job.first)
    why = "each rank has a seed of its own" if seeds else "each rank has made its own"
    return _Cause(
        why,
        "seed all ranks equally before the model is made, or broadcast from rank 0",
        site,
        tuple(related),
    )


def _differs(job: Job, site: Site | None) -> bool:
    """Return whether ranks seed with different numbers at a line."""
    seeds = {
        dict(event.numbers).get("seed")
        for rank, event in job.events("seed")
        if (found := rank.site(event.site))
        and site
        and (found.file, found.line) == (site.file, site.line)
    }
    return len(seeds) > 1


def _rates(job: Job, step: int) -> _Cause | None:
    """Return the cause if learning rates differ before the weights do."""
    changes = {one for rank in job.ranks for one in rank.steps("rate")}
    for one in sorted(change for change in changes if change <= step):
        if len({_rates_at(rank, one) for rank in job.ranks}) == 1:
            continue
        schedulers = [
            rank.site(event.site)
            for rank in job.ranks
            for event in rank.recording.events
            if event.kind == "scheduler" and event.site is not None
        ][:1]
        written = _lines(job, "written-rate")
        site = next(iter((*schedulers, *written)), None) or step_site(job.first)
        return _Cause(
            "their learning rates differ",
            "decide on the learning rate by a number that all ranks share: all_reduce it first",
            site,
            (
                *((line, "the learning rate is set here") for line in written),
                (step_site(job.first), "the step that uses it"),
            ),
        )
    return None


def _rates_at(rank: Rank, step: int) -> tuple[float | None, ...]:
    """Return the learning rates of a step, which stay until they are recorded anew."""
    before = [one for one in rank.steps("rate") if one <= step]
    return rank.numbers["rate", before[-1]] if before else ()


def _after(job: Job, step: int) -> _Cause:
    """Return what changes weights besides equal steps."""
    loads = [one for one in joined_events(job, "load") if len(one.ranks) < len(job.ranks)]
    written = _late(job, _lines(job, "written-weight"))
    site = loads[0].site if loads else next(iter(written), None) or step_site(job.first)
    return _Cause(
        "the script changes weights on each rank" if not loads else "only one rank loads weights",
        "change weights equally on all ranks, or broadcast them",
        site,
        (
            *((line, "weights are written here") for line in written),
            (step_site(job.first), "the step is here"),
        ),
    )


def _between(job: Job) -> list[Site]:
    """Return the lines that write gradients, those after the backward first."""
    found = _lines(job, "written-gradient")
    clips = [
        job.first.site(e.site) for e in job.first.recording.events if e.kind.startswith("clip-")
    ]
    return _late(job, [*found, *(site for site in dict.fromkeys(clips) if site is not None)])


def _late(job: Job, found: list[Site]) -> list[Site]:
    """Return lines, those after the backward in its file first."""
    start = backward_site(job.first)
    if start is None:
        return found
    return sorted(found, key=lambda site: (site.file != start.file, site.line < start.line))


def _lines(job: Job, kind: str) -> list[Site]:
    return job.first.lines(kind)


def _reductions(job: Job) -> list[Site]:
    return [*job.first.lines("gradient-reduced"), *job.first.lines("flat-reduced")]
