"""GS401: a clip that comes when the step is over."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, ZeroEvent
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import step_of_another, writes_in_vain
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipAfterStep(Rule):
    """Gradients are clipped after the step has used them.

    What it finds:
        A call of a clip function after `optimizer.step()`: the step has already used all of its
        gradients, and they are zeroed before the next backward adds to them. Also a loop that
        scales or clamps gradients by hand there.

    Why it matters:
        The clip has no effect. An outlier reaches the weights at full size, without an exception.

    How it is measured:
        The rule tracks for each parameter whether a step has used its gradient. A call is late if
        all of its gradients are used. The finding is an error if one of the late calls exceeds its
        limit, otherwise a warning. A call between another optimizer's backward and its step is left
        to GS411. A clip by hand is read from the source of the loop that runs: it has one backward,
        steps and zeroes gradients without a branch, and scales `.grad` behind its last step, in a
        loop or in a function of the file. That is a warning.

    How to fix it:
        The order is `loss.backward()`, `clip_grad_norm_(…)`, `optimizer.step()`,
        `optimizer.zero_grad()`; with a `GradScaler`, `scaler.unscale_(optimizer)` comes before the
        clip.

    Fix safety:
        Safe. The clip moves before the step, if each runs once per step. If the clip is all that a
        function does, the call of this function moves.

    When it may be wrong:
        If the call is only there for the norm that it returns. A call with `max_norm=float("inf")`
        shows that, and is not reported.

    Source:
        torch documentation, `torch.nn.utils.clip_grad_norm_`: "Gradients are modified in-place".
    """

    code: ClassVar[str] = "GS401"
    name: ClassVar[str] = "clip-after-step"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", reveals=("GS405",))
    needs_run: ClassVar[bool] = True

    share: float = 0.9
    """Share of the calls on a line that must be late, 0 to 1. Chosen: a few late calls, such as
    between training phases, are no mistake of the loop."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips late."""
        clips = context.shared(Clips)
        for calls in clips.by_line:
            # A clip of the actor between backward and step of the critic has the wrong
            # parameters, which another rule reports.
            late = [
                clip for clip in calls if _is_late(clip) and step_of_another(context, clip) is None
            ]
            context.measured_share(
                self.code,
                "share_of_calls",
                steps_of(late),
                steps_of(calls),
                self.share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            # A loop that clips before its first backward clips too early, not too late; its later
            # calls look alike.
            if not late or steps_of(late) < self.share * steps_of(calls) or clips.is_ahead(calls):
                continue
            # Gradients that never exceed the limit lose nothing by the missing clip.
            cut = [clip for clip in late if clip.cuts is not False]
            first = late[0]
            yield self.finding(
                context,
                message=(
                    f"{first.text} comes after the step that uses these gradients: it has no effect"
                ),
                remedy="clip between backward() and step()",
                site=first.event.site,
                related=(_related(context, first),),
                severity="error" if cut else "warning",
                evidence={
                    "late_calls": steps_of(late),
                    "calls": steps_of(calls),
                    "limit": first.limit,
                    "largest_norm": max(
                        (clip.norm for clip in late if clip.norm is not None), default=None
                    ),
                },
                count=steps_of(late),
                step=first.event.step,
            )

        for site, backward, count in writes_in_vain(context, "late"):
            yield self.finding(
                context,
                message="gradients are scaled here after the step has used them: it has no effect",
                remedy="scale them between backward() and step()",
                site=site,
                related=(context.related(backward, "the gradients are computed here"),),
                severity="warning",
                evidence={"late_calls": count, "calls": count},
                count=count,
            )


def _related(context: RuleContext, late: Clip) -> RelatedLocation | None:
    step = late.step_before
    return context.related(None if step is None else step.site, "the step that has used them")


def _is_late(clip: Clip) -> bool:
    """Return whether all its gradients are used, and will not be used again unchanged."""
    # Fresh gradients wait for a step, as after one that the gradient scaler skipped.
    if clip.event.fresh or not clip.event.spent:
        return False
    return (
        # Without a new backward or a zero before it, the next step would reuse these very
        # gradients, clipped.
        any(isinstance(event, BackwardEvent | ZeroEvent) for event in clip.later)
        or clip.step is None
    )
