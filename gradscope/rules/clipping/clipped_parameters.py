"""GS404 and GS411: clips of only some parameters, and of those that another optimizer steps."""

from collections.abc import Iterator, Sequence
from math import hypot
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, ClippedStep, Clips, clipped_steps
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.recording.events import StepEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import step_of_another
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipOfStrangers(Rule):
    """A clip gets other parameters than those that are stepped.

    What it finds:
        `clip_grad_norm_` or `clip_grad_value_` of a model that is not the trained one: the old
        policy, the averaged copy, or the target network. Also a clip of the actor before a step of
        the critic.

    Why it matters:
        These parameters have no gradients. The clip returns a norm of 0 and cuts nothing, and the
        trained gradients are not clipped at all.

    How it is measured:
        A line counts if no optimizer of the run holds one of the parameters that its calls are
        given, none of them has a gradient in any call, and an optimizer steps after the calls. The
        finding is an error if the parameters have the names and shapes of stepped ones, so that
        they are a copy, and a warning otherwise. A line is skipped if another line clips the
        stepped parameters, or if all its parameters are frozen and are no copy. A line counts, too,
        if a backward and a step of one optimizer are around its calls, no call clips a gradient of
        that step, and the clipped gradients are those that another optimizer has used before, or
        zeroes before it could use them: a warning, and an error if the norm of one of these steps
        is above the limit.

    How to fix it:
        Pass the parameters that the optimizer holds.

    When it may be wrong:
        If the parameters are trained later, after the recording ends.

    Source:
        torch source, `torch/nn/utils/clip_grad.py`: parameters without a gradient are skipped, and
        the norm of no gradients is 0. Chosen: counts, without a threshold. Measured: the norm of
        each of 72 such calls in two programs is 0 exactly.
    """

    code: ClassVar[str] = "GS411"
    name: ClassVar[str] = "clip-of-strangers"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS406",)

    share: float = 0.9
    """Share of the calls on a line that must come before the step of another optimizer, 0 to 1.
    Chosen, as for GS401."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips what nobody steps."""
        clips = context.shared(Clips)
        for calls in clips.by_line:
            steps = [step_of_another(context, clip) for clip in calls]
            found = [step for step in steps if step is not None]
            context.measured_share(
                self.code,
                "share_of_calls",
                len(found),
                steps_of(calls),
                self.share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            if found and len(found) >= self.share * steps_of(calls):
                yield self._of_another(context, calls[steps.index(found[0])], found)
        held = frozenset(index for one in clips.windows.optimizers for index in one.parameters)
        lines = [calls for calls in clips.by_line if _has_strangers(calls, held)]
        # A script that clips the trained parameters elsewhere loses nothing by clipping another
        # model, too.
        if not lines or any(_clips_stepped(calls, held) for calls in clips.by_line):
            return
        for calls in lines:
            yield from self._judged(context, calls, held)

    def _judged(
        self, context: RuleContext, calls: Sequence[Clip], held: frozenset[int]
    ) -> Iterator[Finding]:
        given = sorted(frozenset[int]().union(*(clip.parameters or () for clip in calls)))
        records = context.recording.parameters
        is_copy = _are_copies(context, given, held)
        # A target network is a copy and frozen, and its clip still stands in place of the right
        # one. A frozen network that is no copy says nothing of that.
        if not is_copy and not any(records[index].requires_grad for index in given):
            return
        step = _next_step(context, calls[0])
        if step is None:
            return
        first = calls[0]
        what = "a copy of the trained parameters" if is_copy else "parameters"
        yield self.finding(
            context,
            message=(
                f"{first.text} is given {what} that no optimizer steps: their norm is 0, and the "
                "gradients that are stepped are not clipped"
            ),
            remedy="pass the parameters that the optimizer holds",
            site=first.event.site,
            related=(context.related(step, "the step whose gradients are not clipped"),),
            severity="error" if is_copy else "warning",
            parameters=given,
            evidence={
                "parameters": len(given),
                "parameters_in_optimizer": 0,
                "parameters_with_gradient": 0,
                "calls": steps_of(calls),
            },
            count=steps_of(calls),
            step=first.event.step,
        )

    def _of_another(self, context: RuleContext, clip: Clip, steps: Sequence[StepEvent]) -> Finding:
        optimizers = context.shared(Clips).windows.optimizers
        name = optimizers[steps[0].optimizer or 0].name
        norms = [step.norm for step in steps if step.norm is not None]
        largest = max(norms, default=None)
        # NaN compares as false, and so counts as above the limit.
        is_above = largest is not None and clip.limit is not None and not largest <= clip.limit
        given = sorted(clip.parameters or ())
        return self.finding(
            context,
            message=(
                f"{clip.text} comes before {name}.step(), and is given {_owner(context, given)}, "
                "which another optimizer holds: the gradients of this step are not clipped"
            ),
            remedy=f"pass the parameters that {name} holds",
            site=clip.event.site,
            related=(context.related(steps[0].site, "the step whose gradients are not clipped"),),
            severity="error" if is_above else "warning",
            parameters=given,
            evidence={
                "parameters": len(given),
                "limit": clip.limit,
                "largest_norm_of_step": largest,
                "calls": len(steps),
            },
            count=len(steps),
            step=clip.event.step,
        )


def _owner(context: RuleContext, given: Sequence[int]) -> str:
    return ", ".join(positions(context, given)[:3])


def _has_strangers(calls: Sequence[Clip], held: frozenset[int]) -> bool:
    """Return whether no call of a line gets a gradient, or a parameter of an optimizer."""
    return all(
        clip.parameters
        and held.isdisjoint(clip.parameters)
        and not clip.event.fresh
        and not clip.event.spent
        for clip in calls
    )


def _clips_stepped(calls: Sequence[Clip], held: frozenset[int]) -> bool:
    """Return whether a line clips gradients of an optimizer, or unknown ones."""
    return any(not clip.parameters or not held.isdisjoint(clip.parameters) for clip in calls)


def _are_copies(context: RuleContext, given: Sequence[int], held: frozenset[int]) -> bool:
    """Return whether every parameter has the name and the shape of one of an optimizer."""
    records = context.recording.parameters
    trained = {_without_root(records[index].name): records[index].shape.dims for index in held}
    return all(
        trained.get(_without_root(records[index].name)) == records[index].shape.dims
        for index in given
    )


def _without_root(name: str) -> str:
    # The two networks differ by the variable that holds them, which is the first part of the name.
    return name.partition(".")[2]


def _next_step(context: RuleContext, clip: Clip) -> int | None:
    """Return the line of the next step of an optimizer that a backward feeds."""
    events = context.shared(Clips).windows.events[clip.event.position :]
    # A step that no backward feeds has no gradients that could have been clipped.
    return next((one.site for one in only(StepEvent, events) if one.backwards), None)
