"""GS402: a clip that comes before there is a gradient."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import writes_in_vain
from gradscope.rules.rule import Rule


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
            context.measured_share(
                self.code,
                "share_of_calls",
                steps_of(early),
                steps_of(calls),
                self.share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            if not early or steps_of(early) < self.share * steps_of(calls):
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
