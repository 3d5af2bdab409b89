"""GS325: schedules that go on with an optimizer that another one has replaced."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import Event, SchedulerEvent, StepEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOfReplacedOptimizer(Rule):
    """A learning-rate schedule goes on with an optimizer that another one has replaced.

    What it finds:
        A new optimizer for the second stage of a training, or after a change of the model, while
        `scheduler.step()` still belongs to the old one.

    Why it matters:
        The schedule changes the rate of an optimizer that makes no step. The new optimizer keeps
        its first rate to the end: no warm-up, no decay.

    How it is measured:
        After the last step of a scheduler's optimizer, another optimizer that holds some of the
        same parameters makes `least` steps or more with one learning rate, and no scheduler of its
        own steps in the run. From its first step on, the old scheduler makes as many. Optimizers
        that step inside of another one count as that one.

    How to fix it:
        Make a new scheduler with the new optimizer.

    When it may be wrong:
        If the rate of the new optimizer is meant to stay constant, and the old scheduler is stepped
        for its log alone.

    Source:
        torch documentation, "How to adjust learning rate": a scheduler changes the optimizer that
        it was made with.
    """

    code: ClassVar[str] = "GS325"
    name: ClassVar[str] = "schedule-of-replaced-optimizer"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    least: int = 3
    """Number of steps of the new optimizer, and of the old schedule after the first of them.
    Chosen: one or two may end an epoch that the old optimizer began."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(only(SchedulerEvent, context.shared(Windows).events)):
            return None
        return "the run has no learning-rate scheduler"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that is scheduled after it was replaced."""
        windows = context.shared(Windows)
        steps = [one for one in only(StepEvent, windows.events) if one.optimizer is not None]
        calls = list(only(SchedulerEvent, windows.events))
        outer = (_outermost(windows, one.optimizer) for one in calls)
        scheduled = {one for one in outer if one is not None}
        for old in sorted(scheduled):
            last = max((one.position for one in steps if _is_of(windows, one, old)), default=-1)
            new = [
                one
                for one in steps
                if one.position > last
                and _outermost(windows, one.optimizer) not in scheduled
                and _shares(windows, old, one.optimizer)
            ]
            if len({one.lr for one in new}) != 1:
                continue
            begins = new[0].position
            late = [one for one in calls if _is_of(windows, one, old) and one.position > begins]
            context.measured(
                self.code,
                "late_scheduler_steps",
                min(len(late), len(new)),
                self.least,
                subject=windows.optimizers[old].name,
            )
            if min(len(late), len(new)) >= self.least:
                yield self._finding(context, late, new[0], len(new))

    def _finding(
        self, context: RuleContext, late: list[SchedulerEvent], step: StepEvent, steps: int
    ) -> Finding:
        new = context.shared(Windows).optimizers[step.optimizer or 0]
        return self.finding(
            context,
            message=(
                f"{late[0].subject or 'the scheduler'} makes {counted(len(late), 'step')} for an "
                f"optimizer that no longer steps: a later {new.class_name} has replaced it, and no "
                "schedule changes the learning rate of that"
            ),
            remedy="make a new scheduler for the later optimizer",
            site=late[0].site,
            related=(
                context.related(new.site, "the optimizer that steps is made here"),
                context.related(step.site, "it steps here"),
            ),
            parameters=new.parameters,
            evidence={
                "late_scheduler_steps": len(late),
                "steps_of_new_optimizer": steps,
                "least": self.least,
            },
            count=len(late),
            step=late[0].step,
        )


def _outermost(windows: Windows, optimizer: int | None) -> int | None:
    """Return the optimizer whose steps include those of another."""
    while optimizer is not None and (outer := windows.optimizers[optimizer].joined) is not None:
        optimizer = outer
    return optimizer


def _is_of(windows: Windows, event: Event, optimizer: int) -> bool:
    return _outermost(windows, event.optimizer) == optimizer


def _shares(windows: Windows, old: int, new: int | None) -> bool:
    """Return whether an optimizer was made after another, and holds some of its parameters."""
    if new is None or new <= old:
        return False
    held = windows.optimizers[old].parameters
    return not frozenset(held).isdisjoint(windows.optimizers[new].parameters)
