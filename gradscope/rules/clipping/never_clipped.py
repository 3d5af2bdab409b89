"""GS406: a limit that nothing comes near."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.clipping.limits import level_of
from gradscope.analysis.clipping.series import ClipSeries
from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short, times_text
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import is_of_trial, judged_series
from gradscope.rules.rule import Rule

_TINY = 1e-4
"""Limit below which a clip at it would do nothing but hide that the gradient is too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverClipped(Rule):
    """The limit is far above every norm: the clip has no effect.

    What it finds:
        A clip by norm whose limit is several times larger than the largest norm of the run.

    Why it matters:
        Such a clip does not protect: a gradient many times larger than usual passes unclipped.
        Often the limit was chosen for another model or another loss scale.

    How it is measured:
        The limit over the largest norm of all steps. The fewer the steps, the farther away it has
        to be: rare outliers show in long runs only.

    How to fix it:
        Lower the limit until it clips only outliers, as `gradscope clip-report` recommends, or
        remove the call.

    When it may be wrong:
        If the limit is for rare failures only, or for a part of the training that was not recorded.

    Source:
        Measured: a limit at the median plus three deviations keeps the accuracy with 5 % corrupt
        batches (0.75), one at the largest of 99 % of the norms does not (0.18).
    """

    code: ClassVar[str] = "GS406"
    name: ClassVar[str] = "never-clipped"
    level: ClassVar[Severity] = "note"
    needs_run: ClassVar[bool] = True

    beyond: float = 3.0
    """Multiple of the largest norm that the limit must reach. Chosen: a limit for outliers may be
    twice the norm.
    """
    least_steps: int = 100
    """Minimum number of steps for this. Chosen."""
    far_beyond: float = 10.0
    """Multiple of the largest norm that the limit must reach in shorter runs. Chosen."""
    few_steps: int = 20
    """Minimum number of steps for this. Chosen: fewer do not show usual norms."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether there are clips that can be judged."""
        return context.is_run or is_of_trial(context)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose limit is never reached."""
        judged = context.shared(judged_series)
        for series in judged:
            steps = steps_of(series.points)
            largest = max((point.norm for point in series.finite), default=0.0)
            # Summaries of a long run hold the largest norm of an optimizer, not of a line: with two
            # clips it could be that of the other.
            if sum(one.optimizer == series.optimizer for one in judged) == 1:
                spans = context.shared(Windows).kept.spans("raw", [series.optimizer])
                largest = max([largest, *(one.bucket.highest for one in spans)])
            # A step with a non-finite norm exceeded the limit, so the clip has acted.
            if series.method != "norm" or not largest or steps_of(series.finite) < steps:
                continue
            times = (series.limit or 0.0) / largest
            least = self.beyond if steps >= self.least_steps else self.far_beyond
            context.measured(
                self.code,
                "times_largest_norm",
                times,
                least,
                subject=series.text,
                site=series.site,
            )
            is_far = times >= self.beyond and steps >= self.least_steps
            if is_far or (times >= self.far_beyond and steps >= self.few_steps):
                yield self._finding(context, series, largest, times)

    def _finding(
        self, context: RuleContext, series: ClipSeries, largest: float, times: float
    ) -> Finding:
        level = level_of([point.norm for point in series.typical])
        advised = None if level is None else level.limit
        if advised is not None and advised < _TINY:
            remedy = "see why the gradient is so small, or remove the clip"
        else:
            lower = f"lower it to about {literal(advised)}" if advised else "lower it"
            remedy = f"{lower}, which clips only outliers, or remove it"
        return self.finding(
            context,
            message=(
                f"{series.text} has clipped nothing in {steps_of(series.points):,} steps: the "
                f"limit is {times_text(times)} the largest norm, {short(largest)}"
            ),
            remedy=remedy,
            site=series.site,
            evidence={
                "times_largest_norm": times,
                "limit": series.limit,
                "largest_norm": largest,
                "steps": steps_of(series.points),
            },
            count=steps_of(series.points),
            step=series.points[0].step,
        )
