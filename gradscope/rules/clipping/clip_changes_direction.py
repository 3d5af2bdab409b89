"""GS407: a clip that turns the step away."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import ClassVar

from gradscope.analysis.clipping.series import ClipSeries
from gradscope.analysis.kept_steps import KeptSteps, steps_of
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.training import ClipMethod
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.clips import is_of_trial, judged_series
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_HOW: dict[ClipMethod, str] = {
    "value": "clips single elements",
    "per-tensor": "scales each tensor by a different factor",
    "adaptive": "scales each unit by a different factor",
    "norm": "scales all gradients equally",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipChangesDirection(Rule):
    """Clipping by value or by tensor changes the direction of the gradient.

    What it finds:
        Clips by value, or of single parameters, that change the direction of the whole gradient.

    Why it matters:
        The step no longer follows the steepest descent of the loss: large elements are reduced,
        small ones are not. A clip by the global norm scales all gradients equally and keeps their
        direction.

    How it is measured:
        The cosine between all gradients before and after the clip, its median over the steps.
        Summaries of a long run count the cosines of clips by value; of other clips the milder of
        two estimates from the steps that are whole is judged.
        Adaptive clipping by the size of the weights is meant to do so: the finding is a note then.

    How to fix it:
        `clip_grad_norm_(model.parameters(), max_norm)`, or a larger limit, so that outliers alone
        are cut.

    When it may be wrong:
        If only the sign matters, and for layers with gradients of very different sizes, which the
        global norm would clip together.

    Source:
        Measured, six models: a limit at the 99.9 % quantile of the elements leaves a cosine of 0.87
        to 0.99, one at 99 % 0.62 to 0.95, one at 90 % 0.23 to 0.78.
    """

    code: ClassVar[str] = "GS407"
    name: ClassVar[str] = "clip-changes-direction"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="median_cosine", worse="lower"),)

    warning: float = 0.8
    """Cosine below which it is a warning: 37 degrees. Measured, see Source."""
    note: float = 0.95
    """Cosine below which it is a note: 18 degrees."""
    least_steps: int = 5
    """Minimum number of steps. Chosen."""

    def is_for(self, context: RuleContext) -> bool:
        """Return whether there are clips that can be judged."""
        return context.is_run or is_of_trial(context)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that turns gradients away."""
        for series in context.shared(judged_series):
            cosines = [one.cosine for one in series.typical if one.cosine is not None]
            # One factor for all gradients keeps their direction, however hard it cuts.
            if series.method == "norm" or len(cosines) < self.least_steps:
                continue
            kept = KeptSteps(context.recording)
            counted = _counted(series, kept)
            is_estimate = kept.missing > 0 and not counted
            middle = _weighted_median(counted) if counted else median(cosines)
            if is_estimate:  # of the steps that are whole, each counted as one or as many
                whole = [one.cosine for one in series.finite if one.cosine is not None]
                # Of a long run only some steps have cosines. The higher of two estimates does not
                # accuse for the choice of these steps.
                middle = max(middle, median(whole))
            context.measured(
                self.code,
                "median_cosine",
                middle,
                self.note,
                fires="below",
                subject=series.text,
                site=series.site,
            )
            if middle < self.note:
                yield self._finding(context, series, cosines, middle, is_estimate=is_estimate)

    def _finding(
        self,
        context: RuleContext,
        series: ClipSeries,
        cosines: list[float],
        middle: float,
        *,
        is_estimate: bool,
    ) -> Finding:
        # Adaptive clipping limits each unit by its own weights, so that it changes proportions on
        # purpose.
        is_note = middle >= self.warning or series.method == "adaptive"
        first = next(one for one in series.points if one.cosine is not None and one.cosine < 1)
        return self.finding(
            context,
            message=(
                f"{series.text} {_HOW[series.method]} and changes the direction: the median "
                f"cosine to the gradient is {short(middle, 2)}"
            ),
            remedy="use clip_grad_norm_(model.parameters(), max_norm), which keeps the direction, "
            "or raise the limit",
            site=series.site,
            severity="note" if is_note else None,
            evidence={
                "median_cosine": middle,
                "cosine_limit": self.note if is_note else self.warning,
                "least_cosine": min(cosines),
                "limit": series.limit,
                "median_coefficient": median(point.coefficient for point in series.typical),
                **({"from_some_steps": True} if is_estimate else {}),
            },
            count=steps_of(
                one for one in series.finite if one.cosine is not None and one.cosine < self.note
            ),
            step=first.step,
            caused_by=("GS403", "GS404", "GS409"),
        )


def _counted(series: ClipSeries, kept: KeptSteps) -> Mapping[float, float]:
    """Return the cosines of all steps of a long run with their counts; empty if unknown."""
    # A recording counts the cosines of clips by value only. The counts are of a whole line, so they
    # hold only if each of its calls is a point of this series.
    if series.method != "value" or len(series.points) != len(series.calls):
        return {}
    counts = dict(kept.cosines(series.site))
    for point in series.finite if counts else ():
        if point.cosine is not None and not kept.is_summarised(point.step):
            counts[point.cosine] = counts.get(point.cosine, 0.0) + 1
    return counts


def _weighted_median(counts: Mapping[float, float]) -> float:
    half, reached = sum(counts.values()) / 2, 0.0
    for value in sorted(counts):
        reached += counts[value]
        if reached >= half:
            return value
    raise ValueError("no counts")
