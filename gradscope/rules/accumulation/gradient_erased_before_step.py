"""GS302: gradients that are zeroed before a step could use them."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import OUTSIDE, BackwardEvent, Event
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.affected_windows import AffectedWindows, by_line
from gradscope.rules.helpers.leftovers import (
    Overwriting,
    SkippedBatches,
    last_erasure,
    overwriting,
    skipped_batches,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientErasedBeforeStep(Rule):
    """Gradients are zeroed between backward and the step that should use them.

    What it finds:
        A `zero_grad()` after `backward()` and before `step()`, which leaves the step without
        gradients; and one inside a loop over micro-batches, where only the last micro-batch counts.
        Also a loop over a whole loader that zeroes for each batch while `backward()` and `step()`
        stand behind it, because they are indented one level too little.

    Why it matters:
        In the first case the weights never move, or only by momentum and weight decay. In the
        second the work on all other micro-batches is lost, and the batch is smaller than it seems.
        In the third an epoch is one step, on its last batch.

    How it is measured:
        A step counts if unused gradients were zeroed after the last backward before it, and it got
        none. In the second case a step counts if all passes from one line of code were zeroed one
        by one, by one line. The finding is an error if the share of such steps is at least
        `error_share`, a warning if it is at least `warning_share`. The second case is an error only
        if the loss was divided by the number of passes. In the third case a step counts if one line
        zeroed as often before its only backward as a loader that was started has batches. A pass
        whose loss is NaN or infinite may be left out, and counts as none.

    How to fix it:
        Zero before the first backward of a step, or right after the step.

    Fix safety:
        Safe. `zero_grad()` moves before the backward, or before the block around it. If it is
        called for each micro-batch, it moves before the loop over them, or behind the step; no edit
        if that loop goes over a whole loader. A step before its backward moves behind it.

    When it may be wrong:
        Passes whose gradients are only inspected, such as an attack in adversarial training, are
        distinguished from training by their line. If both share a line, the second case is
        reported.

    Source:
        torch documentation, `torch.optim.Optimizer.zero_grad`; patrickloeber/pytorchTutorial issue
        19; yunjey/pytorch-tutorial issue 238.
    """

    code: ClassVar[str] = "GS302"
    name: ClassVar[str] = "gradient-erased-before-step"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.loop")
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS306", "GS313")

    error_share: float = 0.9
    """Share of an optimizer's steps, 0 to 1. Chosen: nearly all. A few may be zeroed on purpose,
    such as for a batch with a NaN loss."""
    warning_share: float = 0.5
    """Share as above. Chosen: most steps."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that erases gradients."""
        series = context.shared(Windows).series
        yield from self._emptied(context, series)
        yield from self._overwritten(context, series)
        yield from self._skipped(context, series)

    def _emptied(self, context: RuleContext, all_series: Sequence[Series]) -> Iterator[Finding]:
        erasures: dict[int, Event] = {}
        affected = []
        for series in all_series:
            found = {
                window.step.position: last_erasure(series, window) for window in series.windows
            }
            erasures |= {position: event for position, event in found.items() if event is not None}
            affected += self._affected(
                context, series, [w for w in series.windows if found[w.step.position]]
            )
        for group in by_line(affected, lambda window: erasures[window.step.position].site):
            is_error = group.step_count >= self.error_share * group.judged
            passes = [event for event in group.first.events if isinstance(event, BackwardEvent)]
            # The line is not always known where a script writes to the gradients itself.
            by_hand = erasures[group.first.step.position].subject == OUTSIDE or group.site is None
            zeroed = "gradients are zeroed by hand" if by_hand else "zero_grad() is called"
            yield self.finding(
                context,
                message=(
                    f"{zeroed} between backward() and step(): {group.text} "
                    f"{'gets' if group.judged == 1 else 'get'} no gradient"
                ),
                remedy=f"{'zero them' if by_hand else 'call zero_grad()'} before backward(), or "
                "after step()",
                site=group.first.step.site if group.site is None else group.site,
                related=(
                    context.related(passes[-1].site, "the backward whose gradients it erases")
                    if passes
                    else None,
                    None
                    if group.site is None
                    else context.related(group.first.step.site, "the step that gets none"),
                ),
                severity="error" if is_error else "warning",
                parameters=group.parameters,
                evidence={
                    "steps_without_gradient": group.step_count,
                    "steps": group.judged,
                    "share_limit": self.error_share if is_error else self.warning_share,
                },
                count=group.step_count,
                # Zeros by hand may stand for NaN in all gradients.
                caused_by=("GS103", "GS104") if by_hand else (),
                # A loop that steps before backward has nothing to erase before its first step.
                step=0 if group.step_count >= group.judged - 1 else group.first.step.step,
            )

    def _overwritten(self, context: RuleContext, all_series: Sequence[Series]) -> Iterator[Finding]:
        losses: dict[int, Overwriting] = {}
        affected = []
        for series in all_series:
            found = {window.step.position: overwriting(series, window) for window in series.windows}
            losses |= {position: one for position, one in found.items() if one is not None}
            affected += self._affected(
                context, series, [w for w in series.windows if found[w.step.position]]
            )
        for group in by_line(affected, lambda window: losses[window.step.position].zero.site):
            first = losses[group.first.step.position]
            passes = len(first.erased) + len(first.kept)
            # A division by the number of passes shows that their sum was intended. Without one,
            # they may only be inspected.
            is_divided = passes > 1 and _is_about(first.divisor, (passes, len(first.erased)))
            is_nearly_all = group.step_count >= self.error_share * group.judged
            yield self.finding(
                context,
                message=(
                    f"zero_grad() is called for each of {passes} micro-batches: only gradients "
                    f"of the last one reach the step, in {group.text}"
                ),
                remedy="call zero_grad() once per step, outside the loop over micro-batches",
                site=group.site,
                related=(
                    context.related(first.kept[-1].site, "the backward whose gradients it erases"),
                    context.related(group.first.step.site, "the step that gets the last ones"),
                ),
                severity="error" if is_divided and is_nearly_all else "warning",
                parameters=group.parameters,
                evidence={
                    "passes": passes,
                    "passes_erased": len(first.erased),
                    "loss_divided_by": first.divisor,
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )

    def _skipped(self, context: RuleContext, all_series: Sequence[Series]) -> Iterator[Finding]:
        loops: dict[int, SkippedBatches] = {}
        affected = []
        for series in all_series:
            found = {w.step.position: skipped_batches(series, w) for w in series.windows}
            loops |= {position: one for position, one in found.items() if one is not None}
            sick = [w for w in series.windows if found[w.step.position]]
            # With a single step, a loop over the batches that trains nothing, followed by one that
            # does, looks the same.
            if steps_of(sick) > 1:
                affected += self._affected(context, series, sick)
        for group in by_line(affected, lambda window: loops[window.step.position].passed.site):
            first = loops[group.first.step.position]
            is_nearly_all = group.step_count >= self.error_share * group.judged
            yield self.finding(
                context,
                message=(
                    f"the loss of one batch in {first.batches} reaches backward(), that of the "
                    f"last one: zero_grad() is called for each batch, and backward() once behind "
                    f"the loop, in {group.text}"
                ),
                remedy="indent backward() and step() into the loop over the batches",
                site=group.site,
                related=(
                    context.related(first.zero.site, "zero_grad() is called for each batch"),
                    context.related(group.first.step.site, "the only step of the epoch"),
                ),
                severity="error" if is_nearly_all else "warning",
                parameters=group.parameters,
                evidence={
                    "batches": first.batches,
                    "steps_concerned": group.step_count,
                    "steps": group.judged,
                },
                count=group.step_count,
                step=group.first.step.step,
            )

    def _affected(
        self, context: RuleContext, series: Series, sick: Sequence[Window]
    ) -> list[AffectedWindows]:
        context.measured_share(
            self.code,
            "share_of_steps",
            steps_of(sick),
            series.step_count,
            self.warning_share,
            subject=series.name,
        )
        if not sick or steps_of(sick) < self.warning_share * series.step_count:
            return []
        return [AffectedWindows(series=series, windows=tuple(sick), judged=series.step_count)]


def _is_about(divisor: float, counts: Sequence[int]) -> bool:
    return math.isfinite(divisor) and round(divisor) in counts
