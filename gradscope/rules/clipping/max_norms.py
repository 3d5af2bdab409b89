"""GS405, GS406 and GS410: limits that clip each step, none, or the gradient to zero."""

from collections.abc import Iterator, Sequence
from math import isnan
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.clipping.limits import level_of
from gradscope.analysis.clipping.series import ClipSeries
from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import literal, short, times_text
from gradscope.recording.events import ClipValueEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.clips import is_of_trial, judged_series
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_TINY = 1e-4
"""Limit below which a clip at it would do nothing but hide that the gradient is too small."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroMaxNorm(Rule):
    """A limit of 0 makes every gradient zero, and a negative one flips its sign.

    What it finds:
        Calls of a clip function with a limit that is zero, negative or NaN.

    Why it matters:
        0 often means "off" in training programs. torch's functions use it as the largest allowed
        norm: no weight learns. With a negative limit, steps increase the loss.

    How it is measured:
        The limit of each call that finds gradients. If other calls on the same line have a limit
        above zero, the finding is a warning.

    How to fix it:
        Call it only `if max_norm > 0`, or give `float("inf")` for no limit.

    When it may be wrong:
        If some parameters should get no gradient for a while. `requires_grad_(False)` says so.

    Source:
        torch source, `torch/nn/utils/clip_grad.py`: every gradient is multiplied by
        `max_norm / (norm + 1e-6)`, at most 1.
    """

    code: ClassVar[str] = "GS410"
    name: ClassVar[str] = "zero-max-norm"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips to nothing."""
        for calls in context.shared(Clips).by_line:
            wrong = [clip for clip in calls if _is_wrong(clip)]
            if wrong:
                yield self._finding(context, wrong, len(calls))

    def _finding(self, context: RuleContext, wrong: Sequence[Clip], calls: int) -> Finding:
        first = wrong[0]
        return self.finding(
            context,
            message=f"{first.text} {_harm(first)}",
            remedy='clip only if the limit is above 0, or pass float("inf") for no limit',
            site=first.event.site,
            severity="error" if len(wrong) == calls else "warning",
            evidence={
                "limit": first.limit,
                "norm": first.norm,
                "calls_without_limit": len(wrong),
                "calls": calls,
            },
            count=len(wrong),
            step=first.event.step,
        )


def _is_wrong(clip: Clip) -> bool:
    limit = clip.limit
    # `not limit > 0` holds for NaN, too. Without a fresh gradient the call changes nothing that a
    # step uses.
    return limit is not None and not limit > 0 and clip.event.fresh > 0


def _harm(clip: Clip) -> str:
    limit = clip.limit or 0.0
    if isnan(limit):
        return "makes every gradient NaN"
    if not limit:
        return "makes every gradient zero: the step has no effect"
    if isinstance(clip.event, ClipValueEvent):
        return f"makes every element of the gradients {limit:g}"
    return "flips the sign of every gradient: the step increases the loss"
