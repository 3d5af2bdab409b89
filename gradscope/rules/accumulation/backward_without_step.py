"""GS307: gradients that nobody uses."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, StepEvent, ZeroEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.norm_table import norms_of
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import most_common
from gradscope.rules.rule import Rule

_MOST = 0.9
"""Share of the steps of other optimizers. Chosen: the first one finds no gradients to erase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardWithoutStep(Rule):
    """Gradients are computed repeatedly but never used.

    What it finds:
        A loop that never calls `optimizer.step()`, and an optimizer that never steps though its
        parameters get gradients while others train.

    Why it matters:
        These parameters stay at their initial values, and the time for backward is wasted.

    How it is measured:
        Over the whole run: there is an optimizer and no step, and at least `passes` backward calls,
        or gradients that no step has used are zeroed `zeroed_passes` times. Or an optimizer has
        made no step in a run of at least `steps`, and its parameters, which no other one trains,
        have a gradient in nearly all of them, or its `zero_grad()` erases gradients that no step
        has used before nearly all of them.

    How to fix it:
        Call `step()` of every optimizer after its backward.

    When it may be wrong:
        Scripts that only inspect gradients and also create an optimizer, and parts that are
        trained after the recording ends.

    Source:
        Chosen thresholds.
    """

    code: ClassVar[str] = "GS307"
    name: ClassVar[str] = "backward-without-step"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    passes: int = 16
    """Number of backward passes. Chosen: a first step may use several micro-batches."""
    zeroed_passes: int = 2
    """Number of times that gradients are zeroed before any step uses them."""
    steps: int = 5
    """Number of steps of other optimizers."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that never steps, or for all of them."""
        windows = context.shared(Windows)
        if not windows.optimizers:
            return
        if not any(isinstance(event, StepEvent) for event in windows.events):
            yield from self._without_any(context, windows)
            return
        idle = [one for one in windows.series if not one.windows]
        active = [one for one in windows.series if one.windows]
        for series in idle:
            yield from self._idle(context, series, active)

    def _without_any(self, context: RuleContext, windows: Windows) -> Iterator[Finding]:
        # A pass that fills no gradient of a parameter, such as one for an input, asks for no step.
        passes = [one for one in windows.events if isinstance(one, BackwardEvent) and one.reached]
        zeroed = [one for one in windows.events if isinstance(one, ZeroEvent) and one.unspent]
        context.measured(self.code, "passes", len(passes), self.passes)
        context.measured(self.code, "zeroed_passes", len(zeroed), self.zeroed_passes)
        # Either is enough: a short run shows by its zeros that each of its few batches was meant to
        # get a step.
        if len(passes) < self.passes and len(zeroed) < self.zeroed_passes:
            return
        record = windows.optimizers[0]
        yield self.finding(
            context,
            message=(
                f"backward() was called {len(passes):,} times, but {record.name}.step() never: "
                "nothing is trained"
            ),
            remedy=f"call {record.name}.step() after backward()",
            site=most_common(one.site for one in passes),
            related=(context.related(record.site, "the optimizer that never steps"),),
            parameters=dict.fromkeys(i for one in windows.optimizers for i in one.parameters),
            evidence={
                "backward_passes": len(passes),
                "gradients_zeroed_unused": len(zeroed),
                "steps": 0,
            },
            count=len(passes),
            step=passes[0].step if passes else 0,
        )

    def _idle(
        self, context: RuleContext, series: Series, active: Sequence[Series]
    ) -> Iterator[Finding]:
        trained = {index for one in active for index in one.parameters}
        # An idle optimizer may hold parameters that another one trains, as one whose successor was
        # made over the same model does.
        own = [index for index in series.parameters if index not in trained]
        steps = {window.step.step for one in active for window in one.windows}
        reached: dict[int, set[int]] = {}
        norms = norms_of(context.recording)
        columns = (norms.steps, norms.parameters, norms.gradients)
        for step, parameter, norm in zip(*columns, strict=True):
            # A negative norm says that there was no gradient. NaN compares as false and stays: it
            # is one.
            if norm and not norm < 0:
                reached.setdefault(parameter, set()).add(step)
        always = [index for index in own if len(reached.get(index, ())) >= _MOST * len(steps)]
        zeroed = _steps_that_zero_unused(context, series)
        # Norms are measured when another optimizer steps. A `zero_grad()` before that leaves none
        # of them.
        if not always and len(zeroed) >= _MOST * len(steps):
            always = own
        if len(steps) < self.steps or not always or series.record is None:
            return
        yield self.finding(
            context,
            message=(
                f"{series.name} never steps although its parameters get gradients: they are not "
                "trained"
            ),
            remedy=f"call {series.name}.step() after backward()",
            site=series.record.site,
            parameters=always,
            evidence={
                "steps_of_others": len(steps),
                "parameters_with_gradient": len(always),
                "parameters": len(series.parameters),
                "gradients_zeroed_unused": len(zeroed),
            },
            count=len(always),
            step=min(steps),
        )


def _steps_that_zero_unused(context: RuleContext, series: Series) -> set[int]:
    """Return the steps before which an optimizer erases gradients that no step has used."""
    windows = context.shared(Windows)
    return {
        event.step
        for event in only(ZeroEvent, windows.events)
        if event.optimizer is not None
        and windows.optimizers[event.optimizer] is series.record
        and event.unspent
    }
