"""GS408: a clip that spreads NaN over all gradients."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import isfinite, isnan
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, ScalerStepEvent, StepEvent, ZeroEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOfNonFinite(Rule):
    """One NaN or infinite gradient spreads to all gradients through the clip.

    What it finds:
        A step whose gradients were clipped by a norm that is NaN or infinite.

    Why it matters:
        Clipping multiplies every gradient by the limit over the norm. Over NaN that makes all of
        them NaN, and the step all weights: the run is lost. Over infinity it makes the finite ones
        zero and the infinite ones NaN.

    How it is measured:
        The norm that the clip function returns, and the gradients at the next step. The rule judges
        an optimizer's first step with NaN or infinity, or with nothing but zeros after an infinite
        norm. If the step is skipped, by a `GradScaler`, by `error_if_nonfinite` or by the script's
        own test of the norm, nothing is reported.

    How to fix it:
        `norm = clip_grad_norm_(…, error_if_nonfinite=True)`, or skip the step if the norm is not
        finite. Then find the cause, for example with `gradscope inspect`.

    When it may be wrong:
        The clip is not the origin of the NaN; it spreads the NaN of one parameter to all.

    Source:
        torch documentation, `torch.nn.utils.clip_grad_norm_`: `error_if_nonfinite`.
    """

    code: ClassVar[str] = "GS408"
    name: ClassVar[str] = "clip-of-non-finite"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS104",)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that spreads NaN first."""
        clips = context.shared(Clips)
        for calls in clips.by_line:
            broken = [clip for clip in calls if _breaks(clips, clip)]
            step = broken[0].step if broken else None
            if step is not None:
                yield self._finding(context, clips, broken, step)

    def _finding(
        self, context: RuleContext, clips: Clips, broken: Sequence[Clip], step: StepEvent
    ) -> Finding:
        first = broken[0]
        word = "NaN" if first.norm is None or isnan(first.norm) else "infinite"
        backward = _last_backward(clips, first)
        computed = backward or first.event
        return self.finding(
            context,
            message=(f"the norm is {word} in step {step.step:,}, and {first.text} {_harm(step)}"),
            remedy=(
                "set error_if_nonfinite=True or skip the step, and find the origin of the first "
                "non-finite gradient"
            ),
            site=first.event.site,
            related=(context.related(computed.site, "the gradients are computed here"),),
            evidence={
                "norm": first.norm,
                "limit": first.limit,
                "loss": None if backward is None else backward.loss,
                "nonfinite_parameters": step.nonfinite,
                "parameters_of_step": step.with_gradient,
            },
            count=len(broken),
            step=first.event.step,
        )


def _breaks(clips: Clips, clip: Clip) -> bool:
    """Return whether a step uses the result of a clip by a non-finite norm."""
    if clip.norm is None or isfinite(clip.norm) or clip.step is None:
        return False
    if clip.parameters is not None and clip.step.optimizer is not None:
        owner = clips.windows.optimizers[clip.step.optimizer]
        # The next step may be that of another optimizer, which the clip cannot have broken.
        if clip.parameters.isdisjoint(owner.parameters):
            return False
    if any(isinstance(event, ZeroEvent | BackwardEvent) for event in clip.later):
        return False  # the gradients were thrown away, or are not complete
    if clip.step_before is not None and clip.step_before.nonfinite:
        return False  # it is lost already
    if _is_left_out(clips, clip.step):
        return False
    # NaN as a norm makes all gradients NaN; an infinite norm makes the finite ones 0, and a norm
    # that overflowed makes all of them 0.
    return bool(clip.step.nonfinite) or clip.step.norm == 0


def _is_left_out(clips: Clips, step: StepEvent) -> bool:
    """Return whether a gradient scaler makes a fused optimizer skip, which is called anyway."""
    later = islice(clips.windows.events, step.position + 1, None)
    told = next(
        (event for event in later if isinstance(event, ScalerStepEvent | BackwardEvent)), None
    )
    return told is not None and isinstance(told, ScalerStepEvent) and told.skipped


def _harm(step: StepEvent) -> str:
    broken = step.nonfinite
    others = step.with_gradient - broken
    if not broken:
        return "makes every gradient zero"
    if not others:
        return f"makes all {broken} gradients NaN"
    return f"makes {broken} gradients NaN and the other {others} zero"


def _last_backward(clips: Clips, clip: Clip) -> BackwardEvent | None:
    """Return the backward before a call; None without one."""
    before = reversed(clips.windows.events[: clip.event.position])
    return next((event for event in before if isinstance(event, BackwardEvent)), None)
