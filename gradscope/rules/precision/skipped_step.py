"""GS602: steps that the gradient scaler skips."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import ScalerStepEvent
from gradscope.recording.evidence.training import ArgumentKind
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import LossScale
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStep(Rule):
    """The gradient scaler keeps skipping a share of the steps.

    What it finds:
        Steps that `scaler.step(optimizer)` skips because a gradient is infinite or NaN, if there
        are more of them than the search for a scale needs.

    Why it matters:
        A skipped step trains nothing. If all steps are skipped, the run continues and the loss
        stays constant, without an exception.

    How it is measured:
        The share of calls of `scaler.step` that skip, after the first that does not. Before that,
        the scaler searches for its scale and halves it with every skip. A run without any step is
        judged after `least_steps` calls, or when the scale has fallen below 1.

    How to fix it:
        Find the first operation that overflows, for example with `gradscope inspect`: float16 ends
        at 65,504. Compute it in float32, or everything in bfloat16, which needs no scaler. Avoid a
        short `growth_interval`: each growth that goes too far costs a step.

    When it may be wrong:
        A scaler normally skips a few steps at the start, and one in about 2,000 later. These are
        not reported.

    Source:
        torch documentation, `torch.amp.GradScaler`: growth by 2 every 2,000 steps, back by half
        with every overflow.
    """

    code: ClassVar[str] = "GS602"
    name: ClassVar[str] = "skipped-step"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "precision"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS307",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_skipped"),)

    warning: float = 0.05
    """Share of the calls after the search, 0 to 1. Chosen: a scaler with its usual settings skips
    one step in 2,000."""
    error: float = 0.5
    """Share of the calls, 0 to 1. Chosen: more steps are skipped than made."""
    least_steps: int = 20
    """Minimum number of calls for judging a share. Chosen: from its default start the scale is
    below 1 after 17 skipped steps.
    """
    least_skipped: int = 3
    """Minimum number of skipped steps after the search. Chosen."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that skips steps."""
        by_line: dict[tuple[int | None, int | None], list[ScalerStepEvent]] = {}
        for event in context.shared(Windows).events:
            if isinstance(event, ScalerStepEvent):
                # A loop over several optimizers steps them all at one line.
                by_line.setdefault((event.site, event.optimizer), []).append(event)
        for calls in by_line.values():
            made = [position for position, call in enumerate(calls) if not call.skipped]
            judged = calls[made[0] :] if made else calls
            skipped = [call for call in judged if call.skipped]
            if self._is_search(context, judged, skipped, has_ended=bool(made)):
                continue
            # A long run keeps some events for several of their kind.
            kept = context.shared(Windows).kept
            counts = kept.steps_of_events(skipped), kept.steps_of_events(judged)
            share = counts[0] / counts[1]
            site = judged[0].site
            context.measured(self.code, "share_skipped", share, self.warning, site=site)
            if share >= self.warning:
                yield self._finding(context, judged, skipped, counts)

    def _is_search(
        self,
        context: RuleContext,
        judged: Sequence[ScalerStepEvent],
        skipped: Sequence[ScalerStepEvent],
        *,
        has_ended: bool,
    ) -> bool:
        """Return whether there are too few steps to distinguish it from the search for a scale."""
        if has_ended:
            return len(judged) < self.least_steps or len(skipped) < self.least_skipped
        scale = context.shared(LossScale).at(judged[-1])
        return len(judged) < self.least_steps and (scale is None or scale >= 1)

    def _finding(
        self,
        context: RuleContext,
        judged: Sequence[ScalerStepEvent],
        skipped: Sequence[ScalerStepEvent],
        counts: tuple[int, int],
    ) -> Finding:
        share = counts[0] / counts[1]
        scale = context.shared(LossScale).at(judged[-1])
        count = "every one" if len(skipped) == len(judged) else f"{counts[0]}"
        return self.finding(
            context,
            message=(
                f"the gradient scaler skips {count} of {counts[1]} steps ({share:.0%}) because "
                "their gradients are not finite"
            ),
            remedy=(
                "find the operation whose result or gradient overflows float16, and compute it in "
                "float32 or bfloat16"
            ),
            site=skipped[0].site,
            severity="error" if share >= self.error else None,
            evidence={
                "share_skipped": share,
                "limit": self.error if share >= self.error else self.warning,
                "skipped": counts[0],
                "calls": counts[1],
                "last_scale": scale,
            },
            count=counts[0],
            step=skipped[0].step,
        )
