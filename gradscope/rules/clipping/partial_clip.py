"""GS404: parameters that the clip forgets."""

from collections.abc import Iterator, Sequence
from math import hypot
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, ClippedStep, Clips, clipped_steps
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.optimizers import positions
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialClip(Rule):
    """The step uses gradients that were not clipped.

    What it finds:
        Steps before which some of the optimizer's parameters are clipped and others are not. Also
        clips of an exhausted iterator, such as `model.parameters()` that was stored in a variable
        and used before.

    Why it matters:
        The unclipped part sets the size of the step: one outlier there moves the weights as far as
        without any clip, and the direction of the step changes too.

    How it is measured:
        The rule takes the parameters that have a gradient at the step, without those that any clip
        since the optimizer's last step was given. Clips of other optimizers' parameters do not
        count. The finding is a note if the unclipped gradients are never larger than the limit, or
        are a small share of all elements. A clip of an exhausted iterator is an error.

    How to fix it:
        Clip `model.parameters()`, once, for all that the optimizer holds. Call `parameters()` anew
        for every use, or keep `list(model.parameters())`.

    Fix safety:
        Safe. The clip gets the parameters that the only optimizer was made with, and an iterator
        that is used up becomes a list. No edit if the file clips in several places, or if the
        parameters have no name where the clip is.

    When it may be wrong:
        If a part is excluded on purpose, such as clipping only recurrent weights.

    Source:
        Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks"
        (arXiv 1211.5063), section 3.2: the norm is that of the whole gradient.
    """

    code: ClassVar[str] = "GS404"
    name: ClassVar[str] = "partial-clip"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", fixes_notes=False, reveals=("GS405",))

    share: float = 0.9
    """Share of an optimizer's clipped steps that must omit parameters, 0 to 1. Chosen."""
    exhausted_share: float = 0.5
    """Share of the calls on a line that must get an exhausted iterator, 0 to 1. Chosen: the first
    call may still find all parameters."""
    small_share: float = 0.01
    """Share of the elements, 0 to 1, below which unclipped parameters are only a note. Chosen:
    scales and loss weights are this small."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with nothing left, and every optimizer's first clip."""
        yield from self._exhausted(context)
        by_optimizer: dict[int | None, list[ClippedStep]] = {}
        for step in context.shared(clipped_steps):
            # Parts may be clipped in several calls, and the rest may belong to another optimizer:
            # only the parameters of a step show what is left out.
            by_optimizer.setdefault(step.event.optimizer, []).append(step)
        for steps in by_optimizer.values():
            partial = [step for step in steps if step.outside]
            context.measured_share(
                self.code,
                "share_of_steps",
                len(partial),
                len(steps),
                self.share,
                site=steps[0].event.site,
            )
            if partial and len(partial) >= self.share * len(steps):
                yield self._partial(context, partial, len(steps))

    def _exhausted(self, context: RuleContext) -> Iterator[Finding]:
        for calls in context.shared(Clips).by_line:
            vain = [clip for clip in calls if clip.event.exhausted and _has_use(clip)]
            context.measured_share(
                self.code,
                "share_of_calls",
                len(vain),
                len(calls),
                self.exhausted_share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            if not vain or len(vain) < self.exhausted_share * len(calls):
                continue
            yield self.finding(
                context,
                message=(
                    f"{vain[0].text} gets an exhausted iterator without parameters: it clips "
                    "nothing"
                ),
                remedy="call model.parameters() for every clip, or store them in a list",
                site=vain[0].event.site,
                severity="error",
                evidence={"calls_without_parameters": len(vain), "calls": len(calls)},
                count=len(vain),
                step=vain[0].event.step,
            )

    def _partial(self, context: RuleContext, partial: Sequence[ClippedStep], steps: int) -> Finding:
        first = partial[0]
        clip = first.clips[0]
        sizes = context.recording.parameters
        left_out = sum(sizes[index].numel for index in first.outside)
        elements = left_out + sum(sizes[index].numel for index in first.inside)
        largest = max(_norm_outside(context, step) for step in partial)
        # A part that is never above the limit would keep its gradient if it were clipped by itself.
        is_harmless = clip.limit is not None and largest <= clip.limit
        outside = ", ".join(positions(context, first.outside))
        inside = ", ".join(positions(context, first.inside))
        return self.finding(
            context,
            message=(
                f"{clip.text} clips only {inside}: the step uses the gradient of {outside} "
                "unclipped"
            ),
            remedy="clip all parameters of the optimizer in one call",
            site=clip.event.site,
            related=(context.related(first.event.site, "the step that uses them all"),),
            severity="note" if is_harmless or left_out < self.small_share * elements else None,
            parameters=first.outside,
            evidence={
                "parameters_outside": len(first.outside),
                "parameters_clipped": len(first.inside),
                "limit": clip.limit,
                "largest_norm_outside": largest,
                "steps": steps,
            },
            count=len(partial),
            step=first.event.step,
        )


def _has_use(clip: Clip) -> bool:
    """Return whether the next step uses a gradient that no other call has clipped."""
    # An empty list beside a clip of everything, as for an optional part of the model, misses
    # nothing.
    if clip.step is None or any(event.kind.startswith("clip") for event in clip.later):
        return False
    return clip.step.fresh > clip.step.clipped


def _norm_outside(context: RuleContext, step: ClippedStep) -> float:
    norms = context.shared(Clips).norms_in(step.event.step)
    return hypot(*(norms[index] for index in step.outside))
