"""GS304: micro-batches of unequal size that weigh the same."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import ClassVar

from gradscope.analysis.windows import Window
from gradscope.frozen import dataclass
from gradscope.phrasing import times_text
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.helpers.leftovers import accumulations, is_mean
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_WHOLE = 1e-5
"""Relative distance from a whole number that rounding leaves, as of an epsilon that is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenAccumulation(Rule):
    """Micro-batches of unequal size get the same weight in a step.

    What it finds:
        Gradient accumulation over the means of micro-batches with unequal numbers of tokens or
        rows: a mean of means. So is a sum that each micro-batch divides by its own count, such as
        `(losses * mask).sum() / mask.sum()`.

    Why it matters:
        Tokens of short sequences get more weight than those of long ones, in proportion to the
        lengths. The gradient differs from that of the whole batch, and results depend on the number
        of micro-batches.

    How it is measured:
        A token's relative weight is the mean token count divided by the count of its micro-batch.
        The rule takes the largest distance from 1 within each step, and compares the median over
        the steps with `deviation`. Tokens are the targets that the loss does not ignore; if they
        are unknown, rows of the model's input count. Of sums that are divided by whole numbers, in
        proportion to the targets, these numbers count.

    How to fix it:
        Use `reduction="sum"` and divide by the number of tokens in all micro-batches of the step.

    Fix safety:
        Unsafe: the weights of all tokens change. The loss takes the sum, and is divided by the
        number of targets of all micro-batches, which is counted before the loop. No edit unless the
        loop goes over a list, the loss is one of torch's, and its target is an item of the list.

    When it may be wrong:
        If every micro-batch should have the same weight, for example if each is a task.

    Source:
        Measured: with lengths of 24 to 32 the gradient is off by 0.4 to 10 %, of 2 to 32 by 2 to
        69 %, of sorted ones by 45 to 63 %. Hugging Face blog, "Fixing Gradient Accumulation";
        transformers pull request 34191.
    """

    code: ClassVar[str] = "GS304"
    name: ClassVar[str] = "uneven-accumulation"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="deviation"),)
    fix: ClassVar[FixRule | None] = FixRule(safety="unsafe", module="fixes.losses")

    deviation: float = 0.1
    """Distance of a weight from 1. Source: as above, lengths of 24 to 32 are tolerable."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose micro-batches are uneven."""
        affected = []
        for one in context.shared(accumulations):
            # Sums give every token the same weight, unless each is divided by a count of its own.
            windows = tuple(
                window for window in one.windows if is_mean(window.passes) or _own_counts(window)
            )
            known = {w.step.position: d for w in windows if (d := _deviation(w)) is not None}
            if known:
                site = windows[0].passes[-1].site
                deviation = median(known.values())
                context.measured(self.code, "deviation", deviation, self.deviation, site=site)
            # The median ignores the smaller last batch of each epoch.
            if known and median(known.values()) > self.deviation:
                uneven = tuple(w for w in windows if known.get(w.step.position, 0) > self.deviation)
                affected.append(
                    AffectedWindows(series=one.series, windows=uneven, judged=len(known))
                )
        for group in by_line(affected, lambda window: window.passes[-1].site):
            worst = max(group.windows, key=lambda window: _deviation(window) or 0.0)
            what, counts = _counts(worst)
            yield self.finding(
                context,
                message=(
                    f"micro-batches of {min(counts):,.0f} to {max(counts):,.0f} {what} get the "
                    f"same weight in a step: those of the smallest count "
                    f"{times_text(_heaviest(counts))} as much as in one batch"
                ),
                remedy=(
                    f'use reduction="sum", and divide by the number of {what} in all '
                    f"{len(counts)} micro-batches of the step"
                ),
                site=group.site,
                related=(context.related(worst.step.site, "the step that uses the mean of means"),),
                parameters=group.parameters,
                evidence={
                    "deviation": _deviation(worst),
                    "median_deviation": median(
                        d for w in group.windows if (d := _deviation(w)) is not None
                    ),
                    "limit": self.deviation,
                    "smallest_count": min(counts),
                    "largest_count": max(counts),
                    "counted": what,
                    "passes": len(counts),
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )


def _deviation(window: Window) -> float | None:
    """Return the deviation of a token's weight from the correct one; None if unknown."""
    _, counts = _counts(window)
    if not counts:
        return None
    mean = sum(counts) / len(counts)
    return max(abs(mean / count - 1) for count in counts)


def _heaviest(counts: Sequence[float]) -> float:
    return sum(counts) / len(counts) / min(counts)


def _own_counts(window: Window) -> list[float]:
    """Return what the sums of micro-batches are divided by, if it is a count of each; else none.

    A total of the step is the same for all, and weights of losses are no whole numbers.
    """
    divisors = [one.divided for one in window.passes if one.reduction == 0 and one.divided]
    if len(divisors) != len(window.passes) or len(set(divisors)) == 1:
        return []
    is_count = all(one > 1 and abs(one - round(one)) < _WHOLE * one for one in divisors)
    if not is_count:
        return []
    # The number of passes, by which all of them may be divided as well, is no part of the count.
    passes = len(divisors)
    shared = passes if all(round(one) % passes == 0 for one in divisors) else 1
    return [one / shared for one in divisors]


def _counts(window: Window) -> tuple[str, list[float]]:
    """Return the unit and its count in each micro-batch; empty if some are unknown."""
    if own := _own_counts(window):
        return "targets", own
    by_name = {
        "tokens": [one.tokens for one in window.passes],
        "rows": [one.rows for one in window.passes],
    }
    # Tokens come first: with padding, equal numbers of rows hide unequal numbers of targets.
    for name, counts in by_name.items():
        known = [count for count in counts if count]
        if len(known) == len(counts):
            return name, known
    return "rows", []
