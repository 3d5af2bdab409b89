"""GS327: schedules of a metric that wait for it to get worse."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateauInWrongMode(Rule):
    """A ReduceLROnPlateau takes the progress of its metric for a plateau, and cuts the rate.

    What it finds:
        `ReduceLROnPlateau(…, mode="max")` that is stepped with a loss, and `mode="min"`, the
        default, that is stepped with an accuracy.

    Why it matters:
        A loss that falls counts as no improvement. The learning rate is cut again and again while
        the training makes progress, until it stands still.

    How it is measured:
        The words of the scheduler's call, or of the assignments and functions that its metric
        comes from, call the metric a loss, or a score. It got better since the first of at least
        `least` calls, by this meaning, and the scheduler cut the rate in one of them.

    How to fix it:
        Use `mode="min"` for a loss or an error, and `mode="max"` for an accuracy or another score.

    When it may be wrong:
        If something that is called a loss is to grow.

    Source:
        torch documentation, `ReduceLROnPlateau`: in `max` mode the rate is reduced "when the
        quantity monitored has stopped increasing".
    """

    code: ClassVar[str] = "GS327"
    name: ClassVar[str] = "plateau-in-wrong-mode"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    least: int = 3
    """Number of calls below which nothing is judged. Chosen: one cut needs two of them."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        for series in context.shared(Windows).series:
            if any(one.metric is not None for one, _ in series.scheduler_calls):
                return None
        return "no ReduceLROnPlateau of the run is given a metric"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer whose rate is cut because of its progress."""
        for series in context.shared(Windows).series:
            calls = [one for one, _ in series.scheduler_calls if one.metric is not None]
            modes = {(one.called, one.maximises) for one in calls}
            context.measured(self.code, "calls", len(calls), self.least, subject=series.name)
            if len(calls) < self.least or modes not in ({(1.0, True)}, {(-1.0, False)}):
                continue
            first, last = calls[0], calls[-1]
            cuts = [one for one in calls if (one.lr_after or 0.0) < (one.lr_before or 0.0)]
            gain = (first.metric or 0.0) - (last.metric or 0.0)
            if not cuts or not (gain < 0 if first.called == -1 else gain > 0):
                continue
            what, wrong, right = ("loss", "max", "min") if first.called == 1 else _SCORE
            made = None if series.record is None else series.record.plateau_site
            yield self.finding(
                context,
                message=(
                    f'ReduceLROnPlateau has mode="{wrong}" but is given a {what}: it goes from '
                    f"{short(first.metric or 0.0)} to {short(last.metric or 0.0)}, which counts as "
                    f"no improvement, and the learning rate of {series.name} is cut "
                    f"{len(cuts):,} times"
                ),
                remedy=f'use mode="{right}" for a {what}',
                site=made or first.site,
                related=(context.related(first.site, "its steps"),) if made is not None else (),
                parameters=series.parameters,
                evidence={
                    "metric_first": first.metric,
                    "metric_last": last.metric,
                    "rate_cuts": len(cuts),
                    "calls": len(calls),
                    "limit": self.least,
                },
                count=len(cuts),
                step=cuts[0].step,
            )


_SCORE = ("score", "min", "max")
