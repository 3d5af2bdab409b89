"""GS324: schedules planned for every optimizer step that are stepped once an epoch."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.schedules import schedule_lines
from gradscope.rules.rule import Rule

_SHARE = 0.25
"""Share of the optimizer's steps, 0 to 1, with a step of the schedule. Chosen: schedules that count
the few micro-batches of each step are not meant."""
_STRAIGHT = 1e-3
"""Relative difference of two rises of the learning rate that rounding explains."""
_LEAST = 20
"""Number of an optimizer's steps below which nothing is judged (chosen)."""


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
            site, beside = schedule_lines(context, series, call)
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
        site, beside = schedule_lines(context, series, call)
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
