"""GS326: schedules planned for the epochs of a run that are stepped after every batch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.phrasing import short
from gradscope.recording.events import EpochEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.schedules import planned_steps, scheduler_calls
from gradscope.rules.rule import Rule

_PASSING = frozenset({"CosineAnnealingLR", "PolynomialLR"})
"""Schedules whose end is the end of a training: the first one rises again, the second stays at 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOutrunsPlan(Rule):
    """A learning-rate schedule that is planned for the epochs steps after every batch.

    What it finds:
        `CosineAnnealingLR(optimizer, T_max=epochs)` or `PolynomialLR(…, total_iters=epochs)` whose
        `step()` is called after each batch and not after each epoch.

    Why it matters:
        The schedule reaches its end within the first epoch. Then a cosine swings between its
        largest and its smallest rate, and a polynomial leaves the rate at 0.

    How it is measured:
        The number of steps that the scheduler is planned for is exactly the number of iterations
        over a `DataLoader` in the run, at least `least`, and its `step()` is called more often than
        twice that.

    How to fix it:
        Call `scheduler.step()` after each epoch, or plan the schedule for
        `epochs * len(loader)` steps.

    When it may be wrong:
        If a cosine is meant to swing, and its period in batches happens to be the number of epochs.

    Source:
        torch documentation, `CosineAnnealingLR`: `T_max` counts steps of the scheduler.
    """

    code: ClassVar[str] = "GS326"
    name: ClassVar[str] = "schedule-outruns-plan"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    least: int = 3
    """Number of epochs below which nothing is judged. Chosen: one or two may be chance."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(planned_steps(series) is not None for series in context.shared(Windows).series):
            return None
        return "no learning-rate scheduler of the run has a planned length"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose schedule ends within the first epochs."""
        windows = context.shared(Windows)
        epochs = set(Counter(one.site for one in only(EpochEvent, windows.events)).values())
        for series in windows.series:
            planned = planned_steps(series)
            calls = [one for one in scheduler_calls(series) if one[0].subject in _PASSING]
            made = sum(count for _, count in calls)
            if planned not in epochs or planned < self.least:
                continue
            limit = 2 * planned
            context.measured(self.code, "scheduler_steps", made, limit, subject=series.name)
            if made <= limit:
                continue
            call = calls[0][0]
            rates = [one.lr_after for one, _ in calls if one.lr_after is not None]
            yield self.finding(
                context,
                message=(
                    f"{call.subject} is planned for {planned:,} steps, as many as the run has "
                    f"epochs, and is stepped {made:,} times: the schedule of {series.name} ends "
                    "early" + (f", and the rate ends at {short(rates[-1])}" if rates else "")
                ),
                remedy="call scheduler.step() after each epoch, or plan the schedule for all "
                "batches",
                site=call.site,
                related=(context.related(series.windows[0].step.site, "the optimizer steps here"),),
                parameters=series.parameters,
                evidence={"steps_planned": planned, "scheduler_steps": made, "limit": limit},
                count=made,
                step=call.step,
            )
