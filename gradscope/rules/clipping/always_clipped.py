"""GS405: a limit that sets the length of every step."""

from collections.abc import Iterator
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.limits import level_of
from gradscope.analysis.clipping.series import ClipSeries
from gradscope.analysis.kept_steps import steps_of
from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import is_of_trial, judged_series
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysClipped(Rule):
    """Nearly every step is clipped to a small fraction of its norm.

    What it finds:
        A clip by norm that scales nearly all steps down to a small fraction.

    Why it matters:
        All steps then have the same length, whatever the loss. With SGD, this is the learning rate
        times the limit, so a lower limit lowers the learning rate. An outlier weighs as much as any
        other step.

    How it is measured:
        The rule takes the share of the steps that are clipped, and the median of the remaining part
        of their norm: the limit over the norm. Adam and the like divide by the size of the
        gradients and so undo a constant factor: for these the limit is much lower, and the finding
        is a note.

    How to fix it:
        Raise the limit until it clips only outliers, and lower the learning rate by the same
        factor. `gradscope clip-report` recommends a limit.

    Fix safety:
        Unsafe: larger steps may need a lower learning rate. The number of the limit becomes the one
        that `max_norm="auto"` would take. No edit if the limit is no number, or a variable or
        setting that is read elsewhere.

    When it may be wrong:
        If steps of equal length are intended, as in normalised gradient descent.

    Source:
        Measured: SGD with a limit of 0.004 times the median norm ends at an accuracy of 0.25 where
        it reaches 0.75 without; Adam with the same limit at 0.75 and 0.76.
    """

    code: ClassVar[str] = "GS405"
    name: ClassVar[str] = "always-clipped"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="median_coefficient", worse="lower"),)
    fix: ClassVar[FixRule | None] = FixRule(safety="unsafe")

    share: float = 0.9
    """Share of the steps that must be clipped, 0 to 1. Measured, see Source."""
    hard: float = 0.05
    """Remaining part of the norm, 0 to 1, below which the median must be. Chosen: trainings with
    SGD and a clip that work well keep 0.1 and more.
    """
    hard_adaptive: float = 0.001
    """Remaining part of the norm, 0 to 1, below which Adam and similar optimizers are reported.
    Chosen: PPO with unnormalised rewards keeps 0.01, and learns.
    """
    least_steps: int = 20
    """Minimum number of steps. Chosen: the first norms are often the largest."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether there are clips that can be judged."""
        return context.is_run or is_of_trial(context)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips all steps hard."""
        for series in context.shared(judged_series):
            known = series.finite
            # A clip by value or by the size of the weights leaves different norms, so it does not
            # make all steps equally long.
            if series.method not in ("norm", "per-tensor") or len(known) < self.least_steps:
                continue
            # A point of a long run may stand for many steps, which a plain median would ignore.
            middle = median(point.coefficient for point in series.typical)
            is_adaptive = series.family == "adaptive"
            limit = self.hard_adaptive if is_adaptive else self.hard
            cut = steps_of(series.cut) / steps_of(known)
            context.measured(
                self.code,
                "share_of_steps_cut",
                cut,
                self.share,
                subject=series.text,
                site=series.site,
            )
            context.measured(
                self.code,
                "median_coefficient",
                middle,
                limit,
                fires="below",
                subject=series.text,
                site=series.site,
            )
            if cut >= self.share and middle < limit:
                yield self._finding(context, series, middle, limit, is_adaptive=is_adaptive)

    def _finding(
        self,
        context: RuleContext,
        series: ClipSeries,
        middle: float,
        limit: float,
        *,
        is_adaptive: bool,
    ) -> Finding:
        level = level_of([point.norm for point in series.typical])
        advised = None if level is None else level.limit
        harm = (
            "every gradient has the same norm when the optimizer gets it"
            if is_adaptive
            else "the limit, not the loss, sets the length of each step"
        )
        # With SGD the low limit was the real learning rate: a higher limit alone would make steps
        # longer by as much.
        slower = "" if is_adaptive else ", and lower the learning rate by as much as steps grow"
        return self.finding(
            context,
            message=(
                f"{series.text} clips {steps_of(series.cut):,} of {steps_of(series.finite):,} "
                f"steps, to a median of {short(100 * middle, 2)} % of their norm: {harm}"
            ),
            remedy=f"raise the limit to about {literal(advised)}{slower}"
            if advised
            else "raise the limit until it clips only outliers",
            site=series.site,
            severity="note" if is_adaptive else None,
            evidence={
                "median_coefficient": middle,
                "coefficient_limit": limit,
                "share_of_steps_cut": steps_of(series.cut) / steps_of(series.finite),
                "limit": series.limit,
                "median_norm": None if level is None else level.median,
            },
            count=steps_of(series.cut),
            step=series.cut[0].step,
            # An exploding gradient, a loss scale that is still in it, or a clip of a part or of a
            # sum cut hard as a consequence.
            caused_by=("GS101", "GS403", "GS404", "GS409"),
        )
