"""GS305: the last micro-batches of an epoch, which make no whole window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.optimizer_steps import Window, Windows
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.leftovers import (
    Accumulation,
    Leftover,
    accumulations,
    leftovers,
    overfull,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteWindow(Rule):
    """The last micro-batches of an epoch are dropped, or leak into the next window.

    What it finds:
        Gradient accumulation over k micro-batches where an epoch has a number of them that k does
        not divide, and nothing is done about the rest.

    Why it matters:
        Either the rest is zeroed, and in each epoch some data is computed for nothing. Or it stays,
        and the first step of the next epoch is larger than all others and mixes gradients of old
        weights in.

    How it is measured:
        The number of passes that feed most steps is the window. Fewer passes that are zeroed before
        a step, or are there when the run ends with its epoch, are dropped. A step with more passes,
        among which an epoch begins, or of which there are several of one size, has a leak.

    How to fix it:
        Step at the end of the epoch too: `if (i + 1) % k == 0 or i + 1 == len(loader)`, divided by
        the number of micro-batches that there are; or use `drop_last=True` and a fitting length.

    When it may be wrong:
        Where a window is given up on purpose, as after a loss that is no number.

    Source:
        Chosen: a count, without a threshold.
    """

    code: ClassVar[str] = "GS305"
    name: ClassVar[str] = "incomplete-window"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose last micro-batches are dropped, or leak."""
        windows = context.shared(Windows)
        for one in context.shared(accumulations):
            leaking = overfull(one)
            if leaking:
                yield self._leaking(context, one, leaking)
            # Where the rest leaks, that of the last epoch stays: it is the same cause.
            dropped = [left for left in leftovers(windows, one) if left.zero or not leaking]
            if dropped:
                yield self._dropped(context, one, dropped)

    def _dropped(
        self, context: RuleContext, one: Accumulation, found: Sequence[Leftover]
    ) -> Finding:
        first = found[0]
        number = sum(len(leftover.passes) for leftover in found)
        zero = next((leftover.zero for leftover in found if leftover.zero is not None), None)
        size = len(first.passes)
        micro_batches = "micro-batch is" if size == 1 else f"{size} micro-batches are"
        return self.finding(
            context,
            message=(
                f"a step takes {one.passes} micro-batches, and the last "
                f"{micro_batches} dropped" + (f", {len(found):,} times" if len(found) > 1 else "")
            ),
            remedy="step at the end of the epoch too, with what there is",
            site=one.site,
            related=(context.related(None if zero is None else zero.site, "they are zeroed here"),),
            parameters=one.series.parameters,
            evidence={
                "passes_each_step": one.passes,
                "passes_dropped": number,
                "passes": number + sum(len(window.passes) for window in one.windows),
                "times": len(found),
            },
            count=len(found),
            step=first.passes[0].step,
        )

    def _leaking(self, context: RuleContext, one: Accumulation, found: Sequence[Window]) -> Finding:
        first = found[0]
        extra = len(first.passes) - one.passes
        return self.finding(
            context,
            message=(
                f"a step takes {one.passes} micro-batches, but {len(first.passes)} where an epoch "
                f"begins: the last {extra} of the epoch before leak into it"
                + (f", {len(found):,} times" if len(found) > 1 else "")
            ),
            remedy="step or zero at the end of the epoch",
            site=one.site,
            related=(context.related(first.step.site, "the step that takes too many"),),
            parameters=one.series.parameters,
            evidence={
                "passes_each_step": one.passes,
                "passes_with_leak": len(first.passes),
                "steps_concerned": len(found),
                "steps": len(one.series.windows),
            },
            count=len(found),
            step=first.step.step,
        )
