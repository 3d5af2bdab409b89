"""GS804: gradients that are averaged over the ranks twice, or not at all."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    JobRule,
    backward_site,
    forward_site,
    job_of,
    joined_events,
    loss_node,
    loss_site,
    on_ranks,
    step_site,
)
from gradscope.rules.helpers.ranks.divisors import (
    SAME,
    changes,
    divided_by,
    divides,
    is_by_product,
    is_multiplied,
    multiplied_means,
    of_loss,
)
from gradscope.rules.helpers.ranks.sums import wrong_sums

_LEAST = 3
"""Least number of steps in which the divisor is a number of all ranks."""


_MEETS = frozenset(
    {"gathered", "value-reduced", "loss-reduced", "summed-number", "hook", "gradient-reduced"}
)
"""Events with which a loss may concern the rows of all ranks."""

_MOST = 0.5
"""Least share of the gradients that ranks average, 0 to 1."""

_APART = ("barrier", "monitored_barrier", "broadcast")
"""Collectives that leave the loss that of a rank's own rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRankAverage(JobRule):
    """Gradients are averaged over the ranks twice, or summed and never divided.

    What it finds:
        A loss, or gradients, divided by the number of ranks although DDP or FSDP averages the
        gradients; a mean over a rank's own rows that is multiplied by the number of ranks, although
        nothing was gathered; a loss, or gradients, divided by a number that is summed over the
        ranks, such as all tokens, without a factor for that average; gradients that the script, or
        a communication hook, sums over the ranks and does not divide, or sums again after another
        backward has added to them; a mean over a rank's own rows where FSDP's division is switched
        off; a sum of activations over the ranks whose backward sums the gradients of equal losses;
        gradients of layers that one rank holds, such as its expert, that are sums over the rows of
        all ranks, while those of other layers are means; a loss that is all-reduced before its
        backward, which does not change the gradients of this rank.

    Why it matters:
        The effective learning rate is off by the number of ranks. It changes with the number of
        ranks that a job happens to get.

    How it is measured:
        The divisor of the loss is compared with the number of ranks, for passes whose gradients a
        wrapper averages. For a sum, it may be a product with this number, such as
        `rows * world_size`. It is also compared with each number that the script summed over the
        ranks by all_reduce in the same step. The source of a communication hook is searched for a
        division. The norm of averaged gradients after backward, or of a gradient after its
        all-reduce, is compared with that at the step. An all-reduce of a tensor with history is
        followed to the loss. Experts are layers whose weights begin apart, in a model whose ranks
        exchange rows by `all_to_all` in the forward; hooks on gradients keep them from a finding.

    How to fix it:
        Leave the division to DDP. Multiply a loss that is divided by the tokens of all ranks by the
        number of ranks. After an all-reduce with SUM, divide by the number of ranks.
        All-reduce a detached copy of the loss, for logging only.

    When it may be wrong:
        If the loss has a weight that happens to be one over the number of ranks, or the learning
        rate is meant for summed gradients.

    Source:
        torch documentation of DistributedDataParallel: gradients are averaged over the ranks.
    """

    code: ClassVar[str] = "GS804"
    name: ClassVar[str] = "wrong-rank-average"
    level: ClassVar[Severity] = "warning"
    explains: ClassVar[tuple[str, ...]] = ("GS313",)

    share: float = 0.9
    """Share of the first passes with such a divisor, 0 to 1. Chosen: nearly all."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every wrong average."""
        job = context.shared(job_of)
        yield from self._divided(context, job)
        yield from self._multiplied(context, job)
        yield from self._divided_later(context, job)
        yield from self._by_all(context, job)
        yield from self._summed(context, job)
        yield from self._by_hook(context, job)
        for wrong in wrong_sums(job):
            yield self.finding(
                context,
                message=wrong.message,
                remedy=wrong.remedy,
                site=wrong.site,
                related=wrong.related,
                evidence=wrong.evidence,
                count=wrong.count,
                step=wrong.step,
                ranks=[one.number for one in job.ranks],
            )
        for one in joined_events(job, "loss-reduced"):
            yield self.finding(
                context,
                message=(
                    f"the loss is reduced in place by {one.event.subject}() before its backward"
                    f"{on_ranks(one.ranks, job)}: gradients stay those of each rank's own loss"
                ),
                remedy="reduce a detached copy for logging: loss.detach().clone()",
                site=one.site,
                related=[(backward_site(one.rank), "the backward")],
                evidence={"passes_concerned": one.count},
                count=one.count,
                step=one.event.step,
                ranks=one.ranks,
            )

    def _divided(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        # Without a wrapper nothing averages, and the division is right. Ranks of tensor parallelism
        # share one batch.
        if not any(rank.wrapped for rank in job.ranks) or job.is_tensor_parallel:
            return
        if _has_own_divisor(job.first):
            return
        site = self._division(context, job)
        if site is None:
            return
        rank = job.first
        yield self.finding(
            context,
            message=(
                f"the loss is divided by the number of ranks, {job.world_size}, although "
                f"{job.strategy} averages the gradients over the ranks already"
            ),
            remedy="do not divide the loss by the number of ranks",
            site=site,
            related=[
                (loss_site(rank), "the loss is made here"),
                (forward_site(rank), "the forward is here"),
                (backward_site(rank), "the backward is here"),
            ],
            evidence={"loss_divided_by": job.world_size, "ranks": job.world_size},
            ranks=[one.number for one in job.ranks],
        )

    def _division(self, context: RuleContext, job: Job) -> Site | None:
        """Return the line that divides the loss by the number of ranks, None if none does."""
        rank = job.first
        written = of_loss(rank, "divided-by-ranks")
        events = [dict(event.numbers) for event in rank.backwards]
        if not written or not events:
            return None
        if job.world_size == 1:  # a division by 1 leaves no trace but its operation
            found = loss_node(rank)
            is_division = found is not None and found[0].operation.startswith("DivBackward")
            same = [one for one in written if found and one.line == found[1].line]
            return same[0] if is_division and same else None
        # With accumulation, the divisor is the product of the ranks and the micro-batches.
        passes = round(rank.backward_count / max(rank.step_count, 1))
        known = {float(job.world_size), float(job.world_size * passes)}
        divided = [
            one
            for one in events
            if (
                is_by_product(one, job.world_size)
                if one.get("reduction") == 0.0
                else one.get("divided", 1.0) in known
            )
        ]
        context.measured_share(
            self.code, "share_of_passes", len(divided), len(events), self.share, site=written[-1]
        )
        is_wrong = len(divided) >= self.share * len(events)
        # Some multiply the gradients again before the step, to sum over the ranks.
        return written[-1] if is_wrong and not is_multiplied(rank, job.world_size) else None

    def _multiplied(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if a mean of the rank's own rows is multiplied by the number of ranks."""
        rank, size = job.first, job.world_size
        written = of_loss(rank, "multiplied-by-ranks")
        passes = [dict(event.numbers) for event in rank.backwards]
        if size == 1 or not rank.wrapped or not written or not passes or job.is_tensor_parallel:
            return
        if _has_own_divisor(rank) or not _MEETS.isdisjoint(rank.events):
            return
        shared = (event.subject for event in rank.events.get("collective", ()))
        if any(not name.startswith(_APART) for name in shared):
            return  # the loss may be a part of one over the rows of all ranks
        wrong = multiplied_means(rank, size)
        ratios = (rank.scaling(step) for step in rank.steps("step"))
        # A later division of the gradients by the number of ranks cancels the factor.
        is_undone = any(one is not None and abs(one * size - 1) <= SAME for one in ratios)
        if len(wrong) < self.share * len(passes) or is_undone:
            return
        yield self.finding(
            context,
            message=(
                f"the loss, a mean over the rows of one rank, is multiplied by the number of ranks,"
                f" {size}: the average of {job.strategy} is the mean over all rows already"
            ),
            remedy="do not multiply the loss by the number of ranks",
            site=written[-1],
            related=[
                (loss_site(rank), "the loss is made here"),
                (backward_site(rank), "the backward"),
            ],
            evidence={"loss_multiplied_by": size, "ranks": size},
            count=len(wrong),
            ranks=[one.number for one in job.ranks],
        )

    def _divided_later(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if gradients that a wrapper averaged are divided before the step."""
        rank = job.first
        written = {(one.file, one.line) for one in rank.lines("written-gradient")}
        # A division by the number of ranks is common for metrics. Only one on a line that writes
        # gradients concerns them.
        divided = [s for s in rank.lines("divided-by-ranks") if (s.file, s.line) in written]
        if not rank.wrapped or job.is_by_hand or not divided or job.world_size == 1:
            return
        if _has_own_divisor(rank):
            return
        if any(dict(e.numbers).get("multiplied") == job.world_size for e in rank.backwards):
            return  # which undoes a factor on the loss
        steps = sorted(set(rank.steps("backward")) & set(rank.steps("step")))
        ratios = [one for step in steps if (one := rank.scaling(step)) is not None]
        share = 1 / job.world_size
        wrong = [one for one in ratios if abs(one - share) <= SAME * share]
        if not wrong or len(wrong) < self.share * len(ratios):
            return
        yield self.finding(
            context,
            message=(
                f"gradients are divided by the number of ranks, {job.world_size}, although "
                f"{job.strategy} has averaged them over the ranks already"
            ),
            remedy="do not divide the gradients by the number of ranks",
            site=divided[0],
            related=[(backward_site(rank), "the backward is here"), (step_site(rank), "the step")],
            evidence={"norm_ratio": wrong[0], "ranks": job.world_size},
            count=len(wrong),
            ranks=[one.number for one in job.ranks],
        )

    def _by_all(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding if a number of all ranks divides what is then averaged over them."""
        rank = job.first
        # A communication hook may divide by something else than the number of ranks.
        has_own = _has_own_divisor(rank) or bool(rank.events.get("hook"))
        if not rank.wrapped or has_own or job.world_size == 1 or job.is_tensor_parallel:
            return
        sums = [
            (int(one.subject), one.site, dict(one.numbers)["value"])
            for one in rank.events.get("summed-number", ())
        ]
        for site in dict.fromkeys(site for _, site, _ in sums):
            values = {step: value for step, where, value in sums if where == site}
            what, seen = divided_by(rank, values, job.world_size)
            if len(seen) < max(_LEAST, self.share * len(values)):
                continue
            line = rank.site(site)
            yield self.finding(
                context,
                message=(
                    f"{what} divided by a number that is summed over {job.world_size} ranks,"
                    f" although {job.strategy} averages the gradients over the ranks as well: they"
                    f" are {job.world_size} times too small"
                ),
                remedy="multiply by the number of ranks as well",
                site=line,
                related=[
                    *((one, "gradients are changed here") for one in changes(rank, what)),
                    (loss_site(rank), "the loss is made here"),
                    (backward_site(rank), "the backward is here"),
                ],
                evidence={"divided_by": values[seen[-1]], "ranks": job.world_size},
                count=len(seen),
                step=seen[0],
                ranks=[one.number for one in job.ranks],
            )

    def _summed(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        for one in joined_events(job, "gradient-scaled"):
            ratio = one.number("ratio") or 0.0
            divisors = [dict(event.numbers).get("divided", 1.0) for event in one.rank.backwards]
            is_divided = any(divides(divisor, job.world_size) for divisor in divisors)
            # A sum over the own rows may be divided by the rows of all ranks, which makes the sum
            # of gradients right.
            is_global = any(dict(e.numbers).get("reduction") == 0.0 for e in one.rank.backwards)
            if not one.number("is_sum") or abs(ratio - 1) > SAME or job.world_size == 1:
                continue
            if is_divided or is_global or (one.number("share") or 1.0) < _MOST or job.is_pipelined:
                continue  # a sum of parts of a gradient, such as that of tied weights
            if _are_means(job):
                continue
            yield self.finding(
                context,
                message=(
                    f"gradients are summed over {job.world_size} ranks and never divided"
                    f"{on_ranks(one.ranks, job)}: the step is {job.world_size} times as long"
                ),
                remedy="divide by the number of ranks after the all_reduce, or use ReduceOp.AVG",
                site=one.site,
                related=[(step_site(one.rank), "the step uses them")],
                evidence={"norm_ratio": ratio, "ranks": job.world_size},
                count=one.count,
                step=one.event.step,
                ranks=one.ranks,
            )

    def _by_hook(self, context: RuleContext, job: Job) -> Iterator[Finding]:
        """Yield a finding on a communication hook whose sums nothing divides."""
        size = job.world_size
        for one in joined_events(job, "summing-hook"):
            divisors = [dict(event.numbers).get("divided", 1.0) for event in one.rank.backwards]
            ratios = (one.rank.scaling(step) for step in one.rank.steps("step"))
            is_divided = any(divides(divisor, size) for divisor in divisors)
            is_scaled = any(r is not None and abs(r * size - 1) <= SAME for r in ratios)
            # A number that is summed over the ranks may be the divisor of the loss.
            if size == 1 or is_divided or is_scaled or one.rank.events.get("summed-number"):
                continue
            yield self.finding(
                context,
                message=(
                    f"the communication hook {one.event.subject} sums gradients over {size} ranks "
                    f"and never divides them: the step is {size} times as long"
                ),
                remedy="divide by the number of ranks in the hook, or use ReduceOp.AVG",
                site=one.site,
                related=[(site, "the hook is registered here") for site in one.related],
                evidence={"ranks": size},
                step=one.event.step,
                ranks=one.ranks,
            )


def _has_own_divisor(rank: Rank) -> bool:
    """Return whether the script sets what FSDP2 divides gradients by."""
    return any(dict(one.options).get("own_divisor") for one in rank.wrapped)


def _are_means(job: Job) -> bool:
    """Return whether gradients at the step are no longer than a mean over the ranks can be.

    Such gradients were divided before their reduction. The norm of a mean is at most the mean of
    the norms; a sum over n ranks, whose gradients agree in part, has about sqrt(n) to n times it.
    """
    steps = job.common_steps("step")
    scalings = [[rank.scaling(step) for rank in job.ranks] for step in steps]
    known = [[one for one in row if one is not None] for row in scalings]
    means = [sum(row) / len(row) for row in known if row]
    return bool(means) and max(means) <= 1 + SAME
