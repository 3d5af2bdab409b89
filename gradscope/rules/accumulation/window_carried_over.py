"""GS316: windows that begin with gradients from the previous epoch."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.windows import Window
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.leftovers import Accumulation, accumulations, carried_over
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


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
