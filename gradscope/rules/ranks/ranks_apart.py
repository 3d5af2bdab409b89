"""GS801: replicas whose weights differ between ranks."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.analysis.ranks.job import Job, first_failure
from gradscope.analysis.ranks.parting import own_parts
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import Moment, ParameterPlacement
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    SINGLE,
    JobRule,
    backward_site,
    forward_site,
    job_of,
    step_site,
)
from gradscope.rules.helpers.ranks.causes import (
    Cause,
    after_equal_steps,
    at_the_beginning,
    drawn_apart,
    left_out_of_optimizer,
    lines_between,
    of_rates,
    reductions,
    trained_by_some,
    unwrapped_causes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksApart(JobRule):
    """Replicas of the same parameters differ between ranks.

    What it finds:
        Ranks that start with different weights, because each has its own seed or only one loaded a
        checkpoint; that step with different learning rates; or whose gradients are changed on each
        rank after the reduction, or omitted from a manual reduction; parameters that the optimizers
        of only some ranks hold; constants, such as random features, that each rank draws for
        itself. Also weights that the script changes on each rank, such as those of
        a teacher that only rank 0 updates; and, as a warning, weights that part beside layers that
        the script itself spreads over the ranks, or between process groups of the wrong ranks.

    Why it matters:
        Data-parallel training assumes equal replicas. Gradients of different weights are averaged,
        and the result is the training of no model at all.

    How it is measured:
        Ranks record the norm of each weight and gradient at the same steps. The rule compares the
        norms of replicated parameters. It looks for the cause in what differs first: weights before
        the first step, learning rates, the parameters of the optimizers, gradients after backward,
        or gradients at the step. With
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

    tolerance: float = AGREEMENT
    """Relative difference up to which replicas' norms count as equal. Chosen: float32 rounding."""

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
        for reason, parted in unwrapped_causes(job):
            yield self._finding(context, job, reason, parted, severity="warning")
        yield from self._draws(context, job)
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
                yield self._finding(context, job, cause, apart, step)
            return
        if not fewer:
            yield from self._digests(context, job)

    def _draws(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding on constants that modules drew, with other numbers on each rank."""
        found = drawn_apart(job) if job.is_data_parallel else []
        if not found:
            return
        names = [one.event.subject for one in found]
        site = found[0].site
        rank = job.first
        yield self.finding(
            context,
            severity="warning",
            message=(
                f"each rank draws {names[0]} for itself, and nothing broadcasts it: the weights"
                " that ranks share read other numbers on each"
            ),
            remedy="make it a buffer that DDP broadcasts, or draw it from a seed that ranks share",
            site=site,
            related=[
                *((one.site, "this is drawn too") for one in found[1:4]),
                *((rank.site(one.site), "the model is wrapped here") for one in rank.wrapped),
                *((one, "random numbers are seeded here") for one in rank.lines("written-seed")),
                (forward_site(rank), "the forward is here"),
            ],
            names=names,
            evidence={"constants_apart": len(names)},
            count=len(names),
            ranks=[one.number for one in job.ranks],
        )

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
            related=[(backward_site(most), "the backward is here")],
            evidence={"fewest_steps": min(steps), "most_steps": max(steps)},
            count=max(steps) - min(steps),
            explains=("GS305", "GS307", "GS810"),
            ranks=[rank.number for rank in job.ranks],
        )

    def _finding(
        self,
        context: RuleContext,
        job: Job,
        cause: Cause,
        names: Sequence[str],
        step: int | None = None,
        severity: Severity = "error",
    ) -> Finding:
        at = job.common_steps("weight")[-1] if step is None else step
        values = [rank.squares("weight", at)[names[0]] ** 0.5 for rank in job.ranks]
        begin = "weights differ between ranks"
        begin = begin if step is None else f"{begin} from step {step:,} on"
        return self.finding(
            context,
            severity=severity,
            message=f"{begin}: {cause.message}",
            remedy=cause.remedy,
            site=cause.site,
            related=cause.related,
            names=names,
            evidence={
                "parameters_apart": len(names),
                "relative_difference": (max(values) - min(values)) / (max(values) or 1.0),
                "limit": self.tolerance,
                "largest_norm": max(values),
            },
            count=len(names),
            step=at,
            ranks=[rank.number for rank in job.ranks],
        )

    def _differing(self, job: Job, moment: Moment, step: int, names: Sequence[str]) -> list[str]:
        """Return the parameters whose numbers differ between ranks."""
        found = [rank.squares(moment, step) for rank in job.ranks]
        return [
            name
            for name in names
            if all(name in one for one in found)
            # The numbers are squares of norms, which differ by twice as much.
            and not agree([one[name] for one in found], 2 * self.tolerance)
        ]

    def _cause(
        self, job: Job, step: int, apart: Sequence[str], names: Sequence[str]
    ) -> Cause | None:
        # The order is that of a training step: a difference that comes earlier causes all later
        # ones.
        if step == min(job.common_steps("weight")):
            return at_the_beginning(job)
        rates = of_rates(job, step)
        if rates is not None:
            return rates
        left_out = left_out_of_optimizer(job, apart)
        if left_out is not None:
            return left_out
        before = [one for one in job.common_steps("step") if one < step]
        for one in before[-1:]:
            partly = trained_by_some(job, one, apart)
            if partly is not None:
                return partly
        uneven = [one for one in before if self._differing(job, "step", one, names)]
        if uneven:
            return self._gradients(job, uneven[0], names)
        return after_equal_steps(job, step)

    def _gradients(self, job: Job, step: int, names: Sequence[str]) -> Cause | None:
        """Return why the gradients that a step uses differ."""
        if job.is_by_hand:
            left = self._differing(job, "step", step, names)
            written = job.first.lines("written-gradient")
            # If all gradients differ, nothing was reduced or something changed all of them. Only a
            # rest shows a loop that leaves some out.
            if len(left) < len(names):
                what = f"the reduction by hand leaves out {left[0]}"
                site = next(iter(reductions(job)), None) or step_site(job.first)
                others = [(one, "gradients are written here") for one in written]
                loops = job.first.lines("written-reduce")
                others = [*((one, "the loop that reduces is here") for one in loops), *others]
                return Cause(what, "reduce the gradient of every parameter", site, tuple(others))
        elif self._differing(job, "backward", step, names):
            # `module.to(dtype)` and the like replace the AccumulateGrad nodes on which DDP has its
            # hooks.
            converted = job.first.lines("converted")
            if converted:
                return Cause(
                    "the model is converted after DDP has wrapped it, which removes the hooks that"
                    " reduce its gradients",
                    "convert a copy of the model, or convert it before DDP wraps it",
                    converted[0],
                    tuple((one, "it is converted again") for one in converted[1:]),
                )
            hooks = job.first.lines("hook")
            wrapped = [job.first.site(one.site) for one in job.first.wrapped]
            site = next(iter((*hooks, *wrapped)), None) or step_site(job.first)
            return Cause(
                "their gradients were not reduced",
                "let DDP reduce the gradients, or reduce each of them by hand",
                site,
                ((step_site(job.first), "the step that uses them"),),
            )
        written = lines_between(job)
        site = next(iter(written), None) or step_site(job.first)
        others = [(one, "gradients are written here") for one in written]
        others += [(one, "gradients are reduced here") for one in reductions(job)]
        return Cause(
            "gradients are changed on each rank between reduction and step",
            "change gradients before the reduction, or equally on all ranks",
            site,
            (*others, (step_site(job.first), "the step that uses them")),
        )


def _replicated(job: Job) -> list[str]:
    """Return the parameters that every rank has a replica of."""
    if not job.is_data_parallel or job.averages_weights:
        return []
    # A script that reduces by hand wraps nothing, so its parameters are local to the recording.
    # Otherwise a local one is of an unwrapped model.
    kinds = {"replicated", "local"} if job.is_by_hand else {"replicated"}
    names = [
        name
        for name in job.shared_names
        if all(_is_replica(rank.placements[name], kinds, job) for rank in job.ranks)
    ]
    own = own_parts(job) if job.is_by_hand else set()
    return [name for name in names if name not in own]


def _is_replica(one: ParameterPlacement, kinds: set[str], job: Job) -> bool:
    """Return whether all ranks hold a parameter; stages of a pipeline may have equal names."""
    return one.kind in kinds and one.copies in (0, job.world_size)
