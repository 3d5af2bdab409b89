"""GS305 and GS316: windows that an epoch ends, and that begin in the one before."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.windows import Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.leftovers import (
    Accumulation,
    Leftover,
    accumulations,
    carried_over,
    early,
    leftovers,
    overfull,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteWindow(Rule):
    """The last micro-batches of an epoch are dropped, or leak into the next window.

    What it finds:
        Gradient accumulation over k micro-batches if k does not divide the number of micro-batches
        per epoch and the remainder is not handled. Also a step right after the first micro-batch,
        as by `if i % k == 0`, which holds for `i = 0`.

    Why it matters:
        If the remainder is zeroed, some data of each epoch is wasted. If it stays, the first step
        of the next epoch is larger than all others and includes gradients of outdated weights. A
        step after one micro-batch uses a k-th of a gradient.

    How it is measured:
        The window is the number of passes that feed most steps. Fewer passes are dropped if they
        are zeroed before a step, or left when the run ends with its epoch. A step with more passes
        has a leak if an epoch begins among them, or if there are several such steps of one size. A
        step is early if it takes the first pass of an epoch alone, and the loss is divided by the
        window; a note if it is the first step only.

    How to fix it:
        Also step at the end of the epoch: `if (i + 1) % k == 0 or i + 1 == len(loader)`, and divide
        by the actual number of micro-batches; or use `drop_last=True` and a matching length.

    When it may be wrong:
        If a window is dropped on purpose, such as after a NaN loss.

    Source:
        Chosen: a count, without a threshold.
    """

    code: ClassVar[str] = "GS305"
    name: ClassVar[str] = "incomplete-window"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose last micro-batches are dropped, or leak."""
        windows = context.shared(Windows)
        for one in context.shared(accumulations):
            if carried_over(one):
                continue  # another rule reports it if every window does
            leaking, too_early = overfull(one), early(one)
            if leaking:
                yield self._leaking(context, one, leaking)
            # What remains after the last epoch has the same cause as in earlier ones.
            has_cause = leaking or len(too_early) > 1
            dropped = [left for left in leftovers(windows, one) if left.zero or not has_cause]
            if dropped:
                yield self._dropped(context, one, dropped)
            # With `i % k == 0` the epoch begins with an early step and ends with a rest. A single
            # early step adds nothing to the finding on the rest.
            if len(too_early) > bool(dropped):
                yield self._early(context, one, too_early)

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
                f"a step takes {one.passes} micro-batches, but the last "
                f"{micro_batches} dropped" + (f", {len(found):,} times" if len(found) > 1 else "")
            ),
            remedy="also step at the end of the epoch, with the remaining micro-batches",
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

    def _early(self, context: RuleContext, one: Accumulation, found: Sequence[Window]) -> Finding:
        first = found[0]
        return self.finding(
            context,
            message=(
                f"a step takes {one.passes} micro-batches, but "
                + (f"{len(found):,} steps take" if len(found) > 1 else "the first one takes")
                + " only the first of an epoch, which is divided by "
                f"{one.passes}, too"
            ),
            remedy=f"step at the end of a window: `if (i + 1) % {one.passes} == 0`",
            site=first.step.site,
            related=(context.related(one.site, "the backward of the micro-batches"),),
            parameters=one.series.parameters,
            evidence={
                "passes_each_step": one.passes,
                "steps_concerned": len(found),
                "steps": one.series.step_count,
            },
            count=len(found),
            step=first.step.step,
            severity="warning" if len(found) > 1 else "note",
        )

    def _leaking(self, context: RuleContext, one: Accumulation, found: Sequence[Window]) -> Finding:
        first = found[0]
        extra = len(first.passes) - one.passes
        return self.finding(
            context,
            message=(
                f"a step takes {one.passes} micro-batches, but {len(first.passes)} when an epoch "
                f"begins: the last {extra} of the previous epoch leak into it"
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
                "steps": one.series.step_count,
            },
            count=len(found),
            step=first.step.step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCarriedOver(Rule):
    """Micro-batches left over at the end of each epoch join the next window.

    What it finds:
        Gradient accumulation over k micro-batches in epochs of fewer than 2 k, counted from the
        start of each epoch. With 7 batches and a window of 4, the steps use 4, 7, 7 and 7
        micro-batches.

    Why it matters:
        Every step except the first uses more micro-batches than the loss is divided by. The
        gradient is too large by this factor, and part of it belongs to the weights of the previous
        epoch.

    How it is measured:
        All steps after the first, at least three, use more passes than the first, and fewer than
        twice as many. Either the loss is divided by the number of passes of the first step, or an
        epoch begins among the passes of each later step. If only some steps use more, the rule
        incomplete-window reports it.

    How to fix it:
        Also step at the end of the epoch: `if (i + 1) % k == 0 or i + 1 == len(loader)`. Or count
        micro-batches over all epochs.

    When it may be wrong:
        If the number of micro-batches grows after the first step on purpose, and the divisor stays.

    Source:
        transformers pull request 24415: the last window of an epoch.
        Chosen: counts. Measured: 7 batches with a window of 4 give steps of 4, 7, 7 passes.
    """

    code: ClassVar[str] = "GS316"
    name: ClassVar[str] = "window-carried-over"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "accumulation"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="passes_each_step"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose windows are too large."""
        for one in context.shared(accumulations):
            found = carried_over(one)
            if found:
                yield self._finding(context, one, found)

    def _finding(self, context: RuleContext, one: Accumulation, found: Sequence[Window]) -> Finding:
        # The first step of a run has no rest before it, so it alone shows the size that was meant.
        window = len(one.series.windows[0].passes)
        extra = one.passes - window
        micro_batches = "micro-batch is" if extra == 1 else f"{extra} micro-batches are"
        return self.finding(
            context,
            message=(
                f"the first step takes {window} micro-batches, all others {one.passes}: the last "
                f"{micro_batches} left over in each epoch and join the next window"
            ),
            remedy="step at the end of the epoch too, or count micro-batches over all epochs",
            site=one.site,
            related=(context.related(found[0].step.site, "the step that takes too many"),),
            parameters=one.series.parameters,
            evidence={
                "passes_each_step": one.passes,
                "passes_of_first_step": window,
                "steps_concerned": len(found),
                "steps": one.series.step_count,
            },
            count=len(found),
            step=found[0].step.step,
        )
