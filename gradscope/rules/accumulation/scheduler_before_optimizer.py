"""GS311: a scheduler that steps before the optimizer has."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import Event, ScalerStepEvent, SchedulerEvent, StepEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerBeforeOptimizer(Rule):
    """The learning-rate scheduler steps before the first optimizer step.

    What it finds:
        `scheduler.step()` before `optimizer.step()`, such as at the start of every epoch or batch.

    Why it matters:
        The first learning rate of the schedule is never used: every rate comes one step early, and
        a warm-up loses its first step.

    How it is measured:
        The scheduler's first step at a line comes before the first step of its optimizer, and the
        line runs again later. The rule does not report a line if a gradient scaler skipped the
        optimizer's step, or if it only runs before training, such as to resume a schedule.

    How to fix it:
        Call `optimizer.step()`, then `scheduler.step()`.

    Fix safety:
        Safe. The scheduler's step moves behind the optimizer's, or behind the loop that makes it. A
        condition around the scheduler's step alone moves with it.

    When it may be wrong:
        If the first rate should be skipped, such as 0 in a warm-up.

    Source:
        torch documentation, "How to adjust learning rate": since 1.1.0 the scheduler comes after
        the optimizer.
    """

    code: ClassVar[str] = "GS311"
    name: ClassVar[str] = "scheduler-before-optimizer"
    level: ClassVar[Severity] = "warning"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.loop")
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        events = context.shared(Windows).events
        if any(isinstance(event, SchedulerEvent) for event in events):
            return None
        return "the run has no learning-rate scheduler"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that steps a scheduler too early."""
        events = context.shared(Windows).events
        # One line may restore a schedule and another one step it in the loop, so each is judged
        # apart.
        by_site: dict[tuple[int | None, int | None], list[SchedulerEvent]] = {}
        for event in events:
            if isinstance(event, SchedulerEvent):
                by_site.setdefault((event.site, event.optimizer), []).append(event)
        for (site, optimizer), calls in by_site.items():
            first = _first_step(events, optimizer)
            early = [] if first is None else [one for one in calls if one.position < first.position]
            # A line all of whose calls come before the first step only restores a schedule.
            if first is None or not early or len(early) == len(calls):
                continue
            # `GradScaler` skips the optimizer's first steps while it looks for a loss scale, and
            # then the scheduler is first in a loop that is right.
            if any(isinstance(event, ScalerStepEvent) for event in events[: early[0].position]):
                continue  # skipped: the loop is in order
            rates = early[0].lr_before, early[-1].lr_after
            yield self.finding(
                context,
                message=(
                    f"{calls[0].subject or 'the scheduler'} steps before the first optimizer step"
                    + _rates_text(*rates)
                ),
                remedy="call optimizer.step() before scheduler.step()",
                site=site,
                related=(context.related(first.site, "the first optimizer step"),),
                evidence={
                    "steps_before_optimizer": len(early),
                    "scheduler_steps": len(calls),
                    "lr_skipped": rates[0],
                    "lr_first_used": first.lr,
                },
                count=len(early),
                step=early[0].step,
            )


def _first_step(events: Sequence[Event], optimizer: int | None) -> StepEvent | None:
    return next(
        (
            event
            for event in events
            if isinstance(event, StepEvent)
            and not event.manual
            and (optimizer is None or event.optimizer == optimizer)
        ),
        None,
    )


def _rates_text(before: float | None, after: float | None) -> str:
    # A plateau or the flat part of a schedule leaves the rate as it is: there is no rate to name as
    # skipped.
    if before is None or after is None or before == after:
        return ": every learning rate comes one step early"
    unused = f"the learning rate {short(before)} is never used"
    return f": {unused}, and training starts with {short(after)}"
