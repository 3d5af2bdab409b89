"""GS411: clips of parameters that the step after them does not use."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.recording.events import StepEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import step_of_another
from gradscope.rules.helpers.optimizers import positions
from gradscope.rules.rule import Rule


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
