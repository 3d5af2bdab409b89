"""GS326: schedules planned for the epochs or the steps of a run that are stepped more often."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import EpochEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.schedules import schedule_lines
from gradscope.rules.rule import Rule

_OFTENER = 1.5
"""Calls of a schedule for each of the optimizer's steps that it is planned for: two micro-batches
give 2, and a step that a gradient scaler skips hardly adds one."""
_STEPS = 10
"""Number of optimizer steps below which nothing is judged."""
_WARMED_UP = "LambdaLR"
"""Class of the schedules of transformers that know their number of steps."""

_Basis = Literal["steps", "epochs", "training"]
_AS_MANY: Mapping[_Basis, str] = {
    "steps": "as many as the optimizer makes steps, ",
    "epochs": "as many as the run has epochs, ",
    "training": "",
}
_REMEDIES: Mapping[_Basis, str] = {
    "steps": "call scheduler.step() after optimizer.step(), and not for each micro-batch",
    "epochs": "call scheduler.step() after each epoch, or plan the schedule for all batches",
    "training": "plan the schedule for all steps of the training: epochs times batches",
}
_PASSING = frozenset({"CosineAnnealingLR", "PolynomialLR"})
"""Schedules whose end is the end of a training: the first one rises again, the second stays at 0.
"""
_ENDING = _PASSING | {_WARMED_UP}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOutrunsPlan(Rule):
    """A learning-rate schedule is stepped more often than it is planned for.

    What it finds:
        `CosineAnnealingLR(optimizer, T_max=epochs)` or `PolynomialLR(…, total_iters=epochs)` whose
        `step()` is called after each batch and not after each epoch. And a schedule that is planned
        for the steps of the optimizer, but stepped for each of the batches whose gradients are
        added up for one. And a schedule of transformers, such as `get_linear_schedule_with_warmup`,
        that is planned for the steps of one epoch, and serves several.

    Why it matters:
        The schedule reaches its end early: within the first epoch, or at a fraction of the
        training. Then a cosine swings between its largest and its smallest rate, and a polynomial
        leaves the rate at 0.

    How it is measured:
        The number of steps that the scheduler is planned for is exactly the number of iterations
        over a `DataLoader` in the run, at least `least`, and its `step()` is called more often than
        twice that. Or it is exactly the number of the optimizer's steps, at least ten, and its
        `step()` is called at least 1.5 times as often. Schedules of transformers tell their number
        of training steps: it is at least ten, and `step()` is called at least 1.5 times as often.

    How to fix it:
        Call `scheduler.step()` after each epoch, or plan the schedule for
        `epochs * len(loader)` steps. With accumulation, call it after `optimizer.step()`.

    When it may be wrong:
        If a cosine is meant to swing, and its period in batches happens to be the number of epochs
        or of the optimizer's steps.

    Source:
        torch documentation, `CosineAnnealingLR`: `T_max` counts steps of the scheduler.
        huggingface/accelerate issue 963.
    """

    code: ClassVar[str] = "GS326"
    name: ClassVar[str] = "schedule-outruns-plan"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109", "GS311")

    least: int = 3
    """Number of epochs below which nothing is judged. Chosen: one or two may be chance."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(series.planned_steps is not None for series in context.shared(Windows).series):
            return None
        return "no learning-rate scheduler of the run has a planned length"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose schedule ends early."""
        windows = context.shared(Windows)
        begun = list(only(EpochEvent, windows.events))
        for series in windows.series:
            planned = series.planned_steps
            calls = [one for one in series.scheduler_calls if one[0].subject in _ENDING]
            made = sum(count for _, count in calls)
            basis = _basis(context, series, begun, made, self.least) if calls else None
            if planned is None or basis is None:
                continue
            limit = 2.0 * planned if basis == "epochs" else _OFTENER * planned
            context.measured(self.code, "scheduler_steps", made, limit, subject=series.name)
            if made < limit or (made == limit and basis == "epochs"):
                continue
            call = calls[0][0]
            site, beside = schedule_lines(context, series, call)
            rates = [one.lr_after for one, _ in calls if one.lr_after is not None]
            yield self.finding(
                context,
                message=(
                    f"{call.subject} is planned for {planned:,} steps, {_AS_MANY[basis]}and is "
                    f"stepped {made:,} times: the schedule of {series.name} ends early"
                    + (f", and the rate ends at {short(rates[-1])}" if rates else "")
                ),
                remedy=_REMEDIES[basis],
                site=site,
                related=(
                    beside,
                    context.related(series.windows[0].step.site, "the optimizer steps here"),
                ),
                parameters=series.parameters,
                evidence={"steps_planned": planned, "scheduler_steps": made, "limit": limit},
                count=made,
                step=call.step,
            )


def _basis(
    context: RuleContext, series: Series, begun: list[EpochEvent], made: int, least: int
) -> _Basis | None:
    """Return what a schedule is planned for; None if nothing tells.

    Args:
        context: What is judged.
        series: The steps of the optimizer.
        begun: The iterations over loaders.
        made: Number of steps of the schedule.
        least: Number of epochs below which nothing is judged.
    """
    planned = series.planned_steps
    if planned is None:
        return None
    if planned == series.step_count >= _STEPS:
        return "steps"
    lengths = {one.batches for one in begun if one.batches is not None}
    # Of a long run, only some epochs are recorded. Each has a call for every batch; the one after
    # the last step is not counted.
    is_of_epochs = (
        any(made <= planned * length <= made + 1 for length in lengths)
        if context.shared(Windows).kept.missing
        else planned in set(Counter(one.site for one in begun).values())
    )
    if is_of_epochs and planned >= least:
        return "epochs"
    # A warm-up with a decay serves a whole training.
    subjects = {call.subject for call, _ in series.scheduler_calls}
    return "training" if planned >= _STEPS and subjects == {_WARMED_UP} else None
