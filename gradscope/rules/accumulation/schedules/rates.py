"""GS321 and GS345: learning rates that a schedule multiplies, or that the script writes over."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, NamedTuple

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import SchedulerEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_SAME = 1e-6
_CONSTANT = 1e-2
"""Relative difference of the largest and the smallest ratio up to which it is one factor."""
_CLOSED = frozenset({"CosineAnnealingWarmRestarts", "CyclicLR", "LambdaLR", "OneCycleLR"})
"""Schedulers that compute a rate without the one before: others go on from what was written."""

_SAME_RATE = 1e-4
"""Largest relative difference of two learning rates that count as equal."""
_LEAST = 10
"""Number of steps below which nothing is judged."""
_STANDSTILL = 0.01
"""Base rate, and so share of the rate that was meant, at which a training hardly moves."""
_LARGEST_BASE = 0.5
"""Base rates above it are factors themselves: of a schedule that is meant to give the rate."""


class _Turn(NamedTuple):
    """A step of an optimizer after a step of its scheduler."""

    call: SchedulerEvent
    before: float
    """Rate of the optimizer's step before."""
    found: float
    """Rate that the scheduler found."""
    scheduled: float
    """Rate that it left."""
    used: float

    @property
    def is_schedule_lost(self) -> bool:
        """Whether the step used another rate than the scheduler left."""
        changes = not math.isclose(self.found, self.scheduled, rel_tol=_SAME)
        return changes and not math.isclose(self.used, self.scheduled, rel_tol=_SAME)

    @property
    def is_own_lost(self) -> bool:
        """Whether a rate was written that the scheduler replaced before a step could use it."""
        written = not math.isclose(self.found, self.before, rel_tol=_SAME)
        return written and math.isclose(self.used, self.scheduled, rel_tol=_SAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOverwritten(Rule):
    """A scheduler and the script write the learning rate, and one of the two is never used.

    What it finds:
        `group["lr"] = …` after each `scheduler.step()`, so that no step uses the rate of the
        schedule. And `group["lr"] = …` before each `scheduler.step()`, as of a warm-up by hand,
        which a scheduler such as `LambdaLR` replaces before the optimizer steps.

    Why it matters:
        One of the two schedules does not exist. Without its warm-up a model may diverge in its
        first steps; without its decay it never settles.

    How it is measured:
        The rate before and after each step of the scheduler, and that of the optimizer's step. A
        schedule is lost if at least `share` of the steps after a call that changed the rate use
        another one, the last among them, and at least `steps` of them. Rates that are a constant
        factor of the scheduled ones, still rise at the end as in a warm-up, or belong to a schedule
        that never changes, are left alone. A rate by hand is lost if it is replaced in at least
        `replaced` steps, by a scheduler that does not go on from the rate that it finds.

    How to fix it:
        Use one of the two: `LinearLR` and `SequentialLR` make a warm-up, or call the scheduler only
        after a warm-up by hand.

    When it may be wrong:
        If the script derives its rates from those of the schedule, by a factor that varies.

    Source:
        torch documentation, "How to adjust learning rate": schedulers write to
        `param_group["lr"]`, and chained ones go on from it.
    """

    code: ClassVar[str] = "GS345"
    name: ClassVar[str] = "rate-overwritten"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    share: float = 0.95
    """Share of the steps, 0 to 1. Chosen: a warm-up ends."""
    steps: int = 20
    """Number of steps of which a schedule is lost. Chosen: longer than a warm-up of epochs."""
    replaced: int = 5
    """Number of rates by hand that are lost. Chosen: rates are set once when a run resumes."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(only(SchedulerEvent, context.shared(Windows).events)):
            return None
        return "the run has no learning-rate scheduler"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer of which a schedule is lost."""
        for series in context.shared(Windows).series:
            turns = list(_turns(series))
            lost = [one for one in turns if one.is_schedule_lost]
            context.measured_share(
                self.code, "share_lost", len(lost), len(turns), self.share, subject=series.name
            )
            own = [one for one in turns if one.is_own_lost and one.call.subject in _CLOSED]
            if len(lost) >= max(self.steps, self.share * len(turns)) and _is_replaced(turns):
                yield self._finding(context, series, lost, is_own=False)
            elif len(own) >= self.replaced:
                yield self._finding(context, series, own, is_own=True)

    def _finding(
        self, context: RuleContext, series: Series, turns: list[_Turn], *, is_own: bool
    ) -> Finding:
        first = turns[0]
        name = first.call.subject or "the scheduler"
        message = (
            f"{name} replaces the learning rate that the script writes, such as "
            f"{short(first.found)}, by {short(first.scheduled)}: no step uses it"
            if is_own
            else f"no step of {series.name} uses the rates of {name}: the script writes another "
            f"one each time, such as {short(first.used)} for {short(first.scheduled)}"
        )
        return self.finding(
            context,
            message=f"{message} ({counted(len(turns), 'step')})",
            remedy=(
                "write the rate by one of the two: a warm-up by `LinearLR` and `SequentialLR`, or "
                "`scheduler.step()` only where the script writes no rate"
            ),
            site=first.call.site,
            related=(context.related(series.windows[0].step.site, "the optimizer steps here"),),
            parameters=series.parameters,
            evidence={"steps_lost": len(turns), "limit": self.replaced if is_own else self.steps},
            count=len(turns),
            step=first.call.step,
        )


def _turns(series: Series) -> Iterator[_Turn]:
    """Yield the optimizer's steps after steps of its scheduler."""
    for before, window in pairwise(series.windows):
        calls = [
            one for one in only(SchedulerEvent, window.events) if one.optimizer in series.optimizers
        ]
        if not calls or window.resumes:
            continue
        rates = (before.step.lr, calls[0].lr_before, calls[-1].lr_after, window.step.lr)
        known = [one for one in rates if one is not None]
        if len(known) == len(rates):
            yield _Turn(calls[-1], *known)


def _is_replaced(turns: list[_Turn]) -> bool:
    """Return whether the used rates have nothing to do with the scheduled ones."""
    scheduled = [one.scheduled for one in turns]
    ratios = [one.used / one.scheduled for one in turns if one.scheduled]
    is_factor = max(ratios, default=1.0) - min(ratios, default=1.0) <= _CONSTANT * max(
        ratios, default=1.0
    )
    rises = turns[-1].used > turns[-2].used
    varies = max(scheduled) - min(scheduled) > _SAME * max(scheduled)
    return turns[-1].is_schedule_lost and varies and not is_factor and not rises


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMultipliedTwice(Rule):
    """The function of a LambdaLR returns the learning rate, which is multiplied by it again.

    What it finds:
        `LambdaLR(optimizer, lambda step: lr * decay(step))`. `LambdaLR` multiplies the optimizer's
        rate by what the function returns.

    Why it matters:
        A rate of 0.01 becomes 0.0001, and 0.001 becomes 0.000001: the training is as good as
        standing still, and nothing looks wrong.

    How it is measured:
        The highest learning rate of all steps of an optimizer is the square of the rate that the
        `LambdaLR` multiplies, to four digits. That rate is below one half. At least ten steps
        are needed, and the highest rate is not that of the last step alone, as in a warm-up. It is
        an error if the rate is at most a hundredth of what was meant.

    How to fix it:
        Return the factor alone, which is 1 for the full rate. Or give the optimizer `lr=1.0`.

    When it may be wrong:
        If a factor happens to be equal to the rate.

    Source:
        torch documentation, `LambdaLR`. pytorch/pytorch issue 78917; lhoyer/MIC issue 60.
    """

    code: ClassVar[str] = "GS321"
    name: ClassVar[str] = "rate-multiplied-twice"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if any(_base(series) is not None for series in context.shared(Windows).series):
            return None
        return "the run has no LambdaLR"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose rate is multiplied by itself."""
        windows = context.shared(Windows)
        schedulers = list(only(SchedulerEvent, windows.events))
        for series in windows.series:
            base, highest = _base(series), _highest(series)
            if base is None or highest is None or abs(highest / base**2 - 1) > _SAME_RATE:
                continue
            function = None if series.record is None else series.record.rate_function
            own = (one for one in schedulers if one.optimizer in (None, *series.optimizers))
            call = next(own, None)
            call_site = None if call is None else call.site
            yield self.finding(
                context,
                severity="error" if base <= _STANDSTILL else self.level,
                message=(
                    f"the learning rate of {series.name} is at most {short(highest)} instead of "
                    f"{short(base)}: LambdaLR multiplies the rate by its function, which returns "
                    "the rate itself"
                ),
                remedy="return the factor alone, which is 1 for the full rate",
                site=call_site if function is None else function,
                related=(
                    context.related(call_site if function is not None else None, "it steps"),
                    context.related(
                        None if series.record is None else series.record.site, "the optimizer"
                    ),
                ),
                parameters=series.parameters,
                evidence={"lr_highest": highest, "lr_base": base, "steps": series.step_count},
                count=series.step_count,
                step=series.windows[0].step.step,
            )


def _highest(series: Series) -> float | None:
    """Return the highest rate of a series, None if it may still rise."""
    rates = [rate for window in series.windows if (rate := window.step.lr) is not None]
    if len(rates) < _LEAST or max(rates[:-1]) < rates[-1]:
        return None
    return max(rates)


def _base(series: Series) -> float | None:
    base = None if series.record is None else series.record.base_rate
    return base if base is not None and 0 < base < _LARGEST_BASE else None
