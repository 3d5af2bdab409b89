"""GS401 to GS403: clips that come before there is a gradient, while it is scaled, or too late."""

from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import BackwardEvent, ZeroEvent
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import LossScale, step_of_another, writes_in_vain
from gradscope.rules.rule import Rule


def _are_usual(
    rule: Rule, context: RuleContext, found: Sequence[Clip], calls: Sequence[Clip], share: float
) -> bool:
    """Note the share of a line's calls that show a mistake; return whether it is large enough."""
    context.measured_share(
        rule.code,
        "share_of_calls",
        steps_of(found),
        steps_of(calls),
        share,
        subject=calls[0].text,
        site=calls[0].event.site,
    )
    return bool(found) and steps_of(found) >= share * steps_of(calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipBeforeBackward(Rule):
    """Gradients are clipped before backward computes them.

    What it finds:
        A call of a clip function before the backward whose gradients the step uses. The call finds
        no gradients, or those that the previous step has already used. Also a loop that scales or
        clamps gradients by hand there.

    Why it matters:
        The clip has no effect on the step. An outlier reaches the weights at full size, without an
        exception.

    How it is measured:
        The rule tracks for each parameter whether it has a gradient, and whether a step has used
        it. A call is early if it gets no unused gradient, and the next step uses gradients of these
        parameters that a backward in between has made. A clip by hand is read from the source of
        the loop that runs: it has one backward, steps and zeroes gradients without a branch, and
        scales `.grad` before its backward alone. That is a warning.

    How to fix it:
        The order is `loss.backward()`, `clip_grad_norm_(…)`, `optimizer.step()`,
        `optimizer.zero_grad()`.

    Fix safety:
        Safe. The clip moves behind the backward, or behind the block around it. If the clip is all
        that a function does, the call of this function moves. No edit if the norm that it returns
        is used before.

    When it may be wrong:
        The rule does not count parameters without a gradient at the step, such as frozen ones, and
        does not report a few early steps, such as those of a warm-up.

    Source:
        torch documentation, `torch.nn.utils.clip_grad_norm_`: "Gradients are modified in-place".
    """

    code: ClassVar[str] = "GS402"
    name: ClassVar[str] = "clip-before-backward"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", reveals=("GS405",))
    needs_run: ClassVar[bool] = True

    share: float = 0.9
    """Share of the calls on a line that must be early, 0 to 1. Chosen: a few early calls, such as
    between training phases, are no mistake of the loop."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips early."""
        clips = context.shared(Clips)
        for calls in clips.by_line:
            early = [clip for clip in calls if _is_early(clips, clip)]
            if not _are_usual(self, context, early, calls, self.share):
                continue
            spent = [clip for clip in early if clip.event.spent]
            if spent and not clips.is_ahead(calls):
                continue  # it is after the step: see clip-after-step
            first = early[0]
            backward = _next_backward(first)
            what = "the gradients of the previous step" if spent else "nothing"
            yield self.finding(
                context,
                message=(
                    f"{first.text} comes before the backward that computes the gradients of the "
                    f"step: it clips {what}"
                ),
                remedy="clip between backward() and step()",
                site=first.event.site,
                related=(context.related(backward.site, "the gradients are computed here"),),
                evidence={
                    "early_calls": steps_of(early),
                    "calls": steps_of(calls),
                    "limit": first.limit,
                },
                count=steps_of(early),
                step=first.event.step,
            )

        for site, made, count in writes_in_vain(context, "early"):
            yield self.finding(
                context,
                message=(
                    "gradients are scaled here before the backward that computes those of the "
                    "step: it has no effect"
                ),
                remedy="scale them between backward() and step()",
                site=site,
                related=(context.related(made, "the gradients are computed here"),),
                severity="warning",
                evidence={"early_calls": count, "calls": count},
                count=count,
            )


def _is_early(clips: Clips, clip: Clip) -> bool:
    """Return whether a call finds nothing to clip, though the step will."""
    # An exhausted iterator also leaves a clip without anything, and no order of calls would help
    # it.
    if clip.event.fresh or not clip.event.parameters or clip.step is None:
        return False
    kinds = [event.kind for event in clip.later]
    # A further clip behind the backward limits the step, and this one is only superfluous.
    if "backward" not in kinds or any(kind.startswith("clip") for kind in _since_backward(kinds)):
        return False
    norms = clips.norms_in(clip.step.step)
    if clip.parameters is not None and norms:
        # A frozen part, or one that the loss does not use yet, has nothing to clip in any order.
        return not clip.parameters.isdisjoint(norms)
    # Without the names of its parameters, a clip of more parameters than lack a gradient must
    # include one with a gradient.
    without = clip.step.none
    return clip.step.fresh > 0 and clip.event.parameters > without


def _since_backward(kinds: list[str]) -> list[str]:
    return kinds[kinds.index("backward") :]


def _next_backward(clip: Clip) -> BackwardEvent:
    return next(event for event in clip.later if isinstance(event, BackwardEvent))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipBeforeUnscale(Rule):
    """Gradients are clipped while they are still multiplied by the loss scale.

    What it finds:
        A call of a clip function between `scaler.scale(loss).backward()` and the unscaling, which
        happens in `scaler.step(optimizer)` at the latest.

    Why it matters:
        The limit is compared with gradients that are about 65,536 times too large. Nearly every
        step is clipped to the limit divided by the scale: training almost stops, and its speed
        changes with the scale.

    How it is measured:
        The rule checks whether the backward that made the gradients began at a scaled loss, and no
        `unscale_` followed. The finding is an error if one of these calls exceeds its limit,
        otherwise a warning.

    How to fix it:
        `scaler.unscale_(optimizer)` before the clip; `scaler.step(optimizer)` then leaves the
        gradients as they are.

    Fix safety:
        Safe. `scaler.unscale_(optimizer)` is inserted before the clip, with the names of the only
        `scaler.step(optimizer)` behind it: in its block, behind the condition around it, or behind
        the only call of a function that does nothing but clip.

    When it may be wrong:
        If the limit is multiplied by the scale. The rule does not report limits that move with the
        scale, or are of its size.

    Source:
        torch documentation, "Automatic Mixed Precision examples", working with unscaled gradients.
    """

    code: ClassVar[str] = "GS403"
    name: ClassVar[str] = "clip-before-unscale"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", reveals=("GS405",))
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    share: float = 0.9
    """Share of the calls on a line that must get scaled gradients, 0 to 1. Chosen: a few steps are
    no mistake of the loop."""
    least_scale: float = 4.0
    """Loss scale below which a limit that ignores it is harmless. Chosen."""
    own_scale: float = 0.05
    """A limit of at least this share of the scale, if it is 1,024 or more, counts as multiplied by
    the scale. Chosen: usual limits are 0.1 to 10.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips scaled gradients."""
        scales = context.shared(LossScale)
        for calls in context.shared(Clips).by_line:
            found = [clip for clip in calls if clip.event.scaled]
            if not _are_usual(self, context, found, calls, self.share):
                continue
            scale = max((s for clip in found if (s := scales.at(clip.event))), default=None)
            if scale is not None and (scale < self.least_scale or self._knows(scales, found)):
                continue
            yield self._finding(context, found, steps_of(calls), scale)

    def _finding(
        self, context: RuleContext, found: Sequence[Clip], calls: int, scale: float | None
    ) -> Finding:
        first = found[0]
        norms = [clip.norm for clip in found if clip.norm is not None and isfinite(clip.norm)]
        size = "" if scale is None or first.limit is None else _size(first.limit, scale)
        return self.finding(
            context,
            message=f"{first.text} clips gradients that are still multiplied by the loss scale"
            + size,
            remedy="call scaler.unscale_(optimizer) before the clip",
            site=first.event.site,
            severity="error" if any(clip.cuts is not False for clip in found) else "warning",
            evidence={
                "scaled_calls": steps_of(found),
                "calls": calls,
                "limit": first.limit,
                "scale": scale,
                "typical_scaled_norm": median(norms) if norms else None,
            },
            count=steps_of(found),
            step=first.event.step,
        )

    def _knows(self, scales: LossScale, calls: Sequence[Clip]) -> bool:
        """Return whether the limit was multiplied by the scale."""
        ratios = {
            clip.limit / scale for clip in calls if clip.limit and (scale := scales.at(clip.event))
        }
        limits = {clip.limit for clip in calls}
        # A limit that is multiplied by `scaler.get_scale()` follows each change of the scale; a
        # fixed one does not.
        if len(limits) > 1 and ratios and max(ratios) <= 1.01 * min(ratios):
            return True
        known = [scale for clip in calls if (scale := scales.at(clip.event))]
        # While the scale never changes, only the size of the limit tells. At small scales, a usual
        # limit is a large share of the scale.
        return bool(ratios) and min(ratios) >= self.own_scale and min(known) >= 1024


def _size(limit: float, scale: float) -> str:
    return f" ({short(scale, 6)}): the limit is {short(limit / scale)} for the step's gradients"


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
            is_usual = _are_usual(self, context, late, calls, self.share)
            # A loop that clips before its first backward clips too early, not too late; its later
            # calls look alike.
            if not is_usual or clips.is_ahead(calls):
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
