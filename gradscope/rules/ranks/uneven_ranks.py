"""GS803: ranks with unequal counts of rows or tokens under a mean loss."""

from collections.abc import Iterator
from statistics import median
from typing import ClassVar

from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.jobs import (
    JobRule,
    backward_site,
    forward_site,
    has_other_ranks,
    job_of,
    loss_site,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenRanks(JobRule):
    """Ranks with unequal numbers of rows or tokens get the same weight.

    What it finds:
        A mean loss over each rank's own rows or tokens, whose numbers differ between the ranks, and
        an average of the gradients over the ranks: a mean of means.

    Why it matters:
        Tokens of a rank with few of them weigh more. The gradient is not that of the whole batch,
        and results depend on the number of ranks.

    How it is measured:
        A token's relative weight is the average count of the ranks divided by the count of its
        rank. The rule takes the largest distance from 1 in each of the first backward passes, and
        compares the median with `deviation`. Tokens are the targets that the loss does not ignore,
        or what the script divides a sum by; else rows of the model's input count.

    How to fix it:
        Sum the loss, multiply by the number of ranks, and divide by the all-reduced number of
        tokens.

    When it may be wrong:
        If every rank should have the same weight, for example if each trains a task of its own.

    Source:
        transformers pull request 34191 and `average_tokens_across_devices`; torchtitan issue 1842.
    """

    code: ClassVar[str] = "GS803"
    name: ClassVar[str] = "uneven-ranks"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (has_other_ranks,)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="deviation"),)

    deviation: float = 0.1
    """Distance of a weight from 1. Source: as for uneven-accumulation."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if most passes are uneven."""
        job = context.shared(job_of)
        found = _counts(job) if job.is_data_parallel else None
        if found is None:
            return
        what, rows = found
        deviations = [_deviation(row) for row in rows]
        context.measured(
            self.code, "median_deviation", median(deviations), self.deviation, subject=what
        )
        # The median ignores the last batches of epochs.
        if median(deviations) <= self.deviation:
            return
        worst = rows[deviations.index(max(deviations))]
        main = loss_site(job.first) or forward_site(job.first)
        yield self.finding(
            context,
            message=(
                f"ranks with {min(worst):,.0f} to {max(worst):,.0f} {what} get the same weight: "
                f"each takes the mean over its own {what}"
            ),
            remedy=(
                f'use reduction="sum", multiply by the number of ranks, and divide by the '
                f"all-reduced number of {what}"
            ),
            site=main,
            related=[
                (forward_site(job.first), "the forward is here"),
                (backward_site(job.first), "the backward is here"),
            ],
            evidence={
                "deviation": max(deviations),
                "median_deviation": median(deviations),
                "limit": self.deviation,
                "smallest_count": min(worst),
                "largest_count": max(worst),
                "counted": what,
            },
            count=sum(one > self.deviation for one in deviations),
            ranks=[rank.number for rank in job.ranks],
        )


def _deviation(counts: list[float]) -> float:
    mean = sum(counts) / len(counts)
    return max(abs(mean / count - 1) for count in counts)


def _counts(job: Job) -> tuple[str, list[list[float]]] | None:
    """Return the unit, and the counts of the ranks in each pass; None if unknown."""
    # Tokens come first: ranks with equal numbers of rows may have unequal numbers of targets.
    for what in ("tokens", "rows"):
        columns = [_of_rank(rank, what) for rank in job.ranks]
        rows = [list(row) for row in zip(*columns, strict=False) if all(row)]
        # One pass alone may be the last of an epoch, which is smaller on some ranks.
        if len(rows) >= 2:
            return what, [[float(one or 0) for one in row] for row in rows]
    return None


def _of_rank(rank: Rank, what: str) -> list[float | None]:
    """Return the counts of a rank in its first passes with a mean loss."""
    found: list[float | None] = []
    for event, one in zip(rank.backwards, rank.passes, strict=False):
        numbers = dict(event.numbers)
        divided = numbers.get("divided", 1.0)
        is_sum = numbers.get("reduction") == 0.0
        if numbers.get("reduction") == 1.0 and (what == "rows" or "tokens" in numbers):
            count = numbers.get("tokens") if what == "tokens" else one.rows
            found.append(None if count is None else float(count))
        # A sum divided by a whole number is a mean over as many tokens, as with a mask that the
        # script counts itself.
        elif is_sum and what == "tokens" and divided > 1 and divided == int(divided):
            found.append(divided)
        else:
            found.append(None)
    return found
