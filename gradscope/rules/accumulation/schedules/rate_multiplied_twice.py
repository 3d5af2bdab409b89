"""GS321: schedules whose function returns the learning rate instead of a factor."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Series, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.events import SchedulerEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule

_SAME = 1e-4
"""Largest relative difference of two learning rates that count as equal."""
_LEAST = 10
"""Number of steps below which nothing is judged."""
_STANDSTILL = 0.01
"""Base rate, and so share of the rate that was meant, at which a training hardly moves."""
_LARGEST_BASE = 0.5
"""Base rates above it are factors themselves: of a schedule that is meant to give the rate."""


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
            if base is None or highest is None or abs(highest / base**2 - 1) > _SAME:
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
