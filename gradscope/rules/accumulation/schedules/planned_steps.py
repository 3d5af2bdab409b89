"""GS324 and GS326: schedules that are stepped more rarely, or more often, than planned."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import ClassVar, Literal

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import EpochEvent, SchedulerEvent, only
from gradscope.recording.evidence.training import LibraryCall
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_SHARE = 0.25
"""Share of the optimizer's steps, 0 to 1, with a step of the schedule. Chosen: schedules that count
the few micro-batches of each step are not meant."""
_STRAIGHT = 1e-3
"""Relative difference of two rises of the learning rate that rounding explains."""
_LEAST = 20
"""Number of an optimizer's steps below which nothing is judged (chosen)."""

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
class ScheduleSteppedRarely(Rule):
    """A learning-rate schedule that is planned for all batches steps once an epoch.

    What it finds:
        `OneCycleLR(…, total_steps=epochs * len(loader))` whose `step()` is called after each epoch
        and not after each batch, and the same of other schedules with a planned length. Also a
        `LambdaLR` whose warm-up counts batches, as those of transformers do.

    Why it matters:
        The run ends at the start of the schedule. One cycle stays at its small first rates, a
        warm-up never ends, and a decay never begins.

    How it is measured:
        The number of steps that the scheduler is planned for is exactly the number of steps that
        its optimizer makes in the run, and its `step()` is called in less than a quarter of them.
        `OneCycleLR`, `CosineAnnealingLR`, `LinearLR` and `PolynomialLR` have a planned length. At
        least 20 steps are needed. A `LambdaLR` has none. It is found if its `step()` is called as
        rarely, `warm_up_calls` times at least, every call raises the learning rate, and this is
        still below `warm_up_rate` of the optimizer's own at the end. So is a `LinearLR` whose rate
        rises, is planned for fewer calls than there are steps, and ends below that share of the
        rate that it leads to.

    How to fix it:
        Call `scheduler.step()` after every `optimizer.step()`, or plan the schedule in epochs.

    When it may be wrong:
        If a schedule is planned for as many epochs as a shorter run has batches, or a run is a
        trial that ends early in a warm-up of many epochs.

    Source:
        torch documentation, `OneCycleLR`: "step should be called after a batch has been used for
        training".
    """

    code: ClassVar[str] = "GS324"
    name: ClassVar[str] = "schedule-stepped-rarely"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    warm_up_rate: float = 0.1
    """Share of the optimizer's own learning rate. Chosen: a warm-up of epochs is over sooner."""
    warm_up_calls: int = 3
    """Number of calls. Chosen: with fewer, a run may be only a trial."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        series = context.shared(Windows).series
        if any(one.planned_steps is not None or _own_rate(one) is not None for one in series):
            return None
        return "no learning-rate scheduler of the run has a planned length or a function"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose schedule hardly begins."""
        for series in context.shared(Windows).series:
            yield from self._of_warm_up(context, series)
            planned, steps = series.planned_steps, series.step_count
            if planned != steps or steps < _LEAST:
                continue
            calls = list(series.scheduler_calls)
            made = sum(count for _, count in calls)
            if not 0 < made < _SHARE * steps:
                continue
            call = calls[0][0]
            site, beside = _schedule_lines(context, series, call)
            rate = series.windows[-1].step.lr
            name = call.subject or "the scheduler"
            yield self.finding(
                context,
                message=(
                    f"{name} is planned for {planned:,} steps, as many as {series.name} makes, "
                    f"and is stepped only {made:,} times before the last of them"
                    + ("" if rate is None else f": the learning rate ends at {short(rate)}")
                ),
                remedy="call scheduler.step() after every optimizer.step(), or plan the schedule "
                "in epochs",
                site=site,
                related=(
                    beside,
                    context.related(series.windows[0].step.site, "the optimizer steps here"),
                ),
                parameters=series.parameters,
                evidence={"steps_planned": planned, "steps": steps, "scheduler_steps": made},
                count=steps,
                step=call.step,
            )

    def _of_warm_up(self, context: RuleContext, series: Series) -> Iterator[Finding]:
        """Yield a finding if the function of a schedule warms up over the whole run."""
        steps = series.step_count
        calls = list(series.scheduler_calls)
        made = sum(count for _, count in calls)
        rates = [window.step.lr for window in series.windows]
        known = [rate for rate in rates if rate is not None]
        stages = [rate for rate, _ in groupby(known)]
        own = _own_rate(series) or _end_of_line(series, stages)
        if own is None or steps < _LEAST or len(known) < len(rates):
            return
        is_rare = self.warm_up_calls <= made < _SHARE * steps
        is_rising = len(stages) > self.warm_up_calls and stages == sorted(stages)
        if not is_rare or not is_rising:
            return
        context.measured(
            self.code, "warm_up_rate", stages[-1] / own, self.warm_up_rate, fires="below"
        )
        if stages[-1] >= self.warm_up_rate * own:
            return
        call = calls[0][0]
        site, beside = _schedule_lines(context, series, call)
        yield self.finding(
            context,
            message=(
                f"the warm-up of {series.name} is stepped only {made:,} times in {steps:,} steps: "
                f"the learning rate ends at {short(stages[-1])}, still rising to {short(own)}"
            ),
            remedy="call scheduler.step() after every optimizer.step(), or plan the warm-up in "
            "epochs",
            site=site,
            related=(
                beside,
                context.related(series.windows[0].step.site, "the optimizer steps here"),
            ),
            parameters=series.parameters,
            evidence={
                "warm_up_rate": stages[-1] / own,
                "limit": self.warm_up_rate,
                "steps": steps,
                "scheduler_steps": made,
            },
            count=steps,
            step=call.step,
        )


def _own_rate(series: Series) -> float | None:
    """Return the learning rate that a schedule multiplies by a function; None without one."""
    return (series.record and series.record.base_rate) or None


def _end_of_line(series: Series, stages: list[float]) -> float | None:
    """Return the learning rate to which a linear warm-up leads; None if it is none.

    Each batch would have to be counted for it to end within the run.
    """
    planned = series.planned_steps
    if planned is None or not len(stages) <= planned < series.step_count or len(stages) < 3:
        return None
    rises = [after - before for before, after in pairwise(stages)]
    is_straight = min(rises) > 0 and max(rises) - min(rises) <= _STRAIGHT * max(rises)
    return stages[0] + planned * rises[0] if is_straight else None


def _schedule_lines(
    context: RuleContext, series: Series, call: SchedulerEvent
) -> tuple[int | None, RelatedLocation | None]:
    """Return the line of a schedule's step, and the line that made the schedule beside it.

    Where a trainer steps the schedule, the line that made it comes first: a call such as
    `trainer.fit` says nothing of it.
    """
    made = None if series.record is None else series.record.schedule_site
    trainers = {one.caller for one in context.recording.evidence_of(LibraryCall)}
    if made is not None and call.site in trainers:
        return made, context.related(call.site, "the trainer steps it here")
    return call.site, context.related(made, "the schedule is made here")


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
            site, beside = _schedule_lines(context, series, call)
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
