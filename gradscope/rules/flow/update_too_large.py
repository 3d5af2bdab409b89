"""GS108: steps that are large against the weights."""

from collections.abc import Iterator
from math import isfinite
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.evidence.training import ArgumentKind, OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.helpers.updates import (
    Divergence,
    UpdateRatios,
    rises_beyond_noise,
    rises_by,
    stays_up,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Rule

_IF_LOSS_FALLS: dict[Severity, Severity | None] = {"error": "note", "warning": None, "note": None}
_IF_NOT_TRIED: dict[Severity, Severity | None] = {
    "error": "warning",
    "warning": "note",
    "note": None,
}
_CONSEQUENCES = (
    *("GS101", "GS102", "GS103", "GS104", "GS105", "GS106", "GS107", "GS110", "GS204", "GS306"),
)
"""Rules that report the effects of diverged weights."""
_NAN = frozenset({"GS103", "GS104"})
_WARNS = 2.0
"""Times the first loss that a loss reaches before too large steps make it NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTooLarge(Rule):
    """One optimizer step changes the weights by a large fraction of their norm.

    What it finds:
        A learning rate that is too large for this model and batch.

    Why it matters:
        Large steps leave the region where the gradient is a good approximation: the loss jumps,
        ReLU units die, training diverges.

    How it is measured:
        For every weight matrix that gets a gradient, the norm of the first step's change over the
        norm of the weight. The median over the matrices is judged, without embeddings and weights
        that are all zero. The limits are `sgd_warning` and `sgd_error` for SGD, and
        `adaptive_note`, `adaptive_warning` and `adaptive_error` for Adam and similar optimizers,
        whose first step is the learning rate in every element. If the loss on the same batch falls
        in the probing steps, an error becomes a note and the rest is not reported. If it becomes
        NaN or infinite, a warning becomes an error. Without probing steps a finding is one level
        milder. If the target was trained before the judged step, a step on the way is an error if
        the weights grew by the limit of an error and the loss has risen tenfold since the first
        step or is not finite. In a training run, a step is judged only by whether the loss of the
        same line rises tenfold within the next 20 steps, or stops being finite. The rise must
        exceed what batches vary: the highest loss lies 6 standard deviations of the logarithm above
        the start, or the median of the 20 losses 3. One of the first steps also counts if the loss
        jumps by half within 20 steps, and three quarters of all losses, and the last ones, stay at
        its start or above. The deviation is that of changes from step to step, and the start is the
        median of the five losses before, if that is higher.

    How to fix it:
        Lower the learning rate until the ratio is about 0.001 to 0.01, or warm it up.

    Fix safety:
        Unsafe: the best learning rate depends on the whole training. A third, a tenth, a thirtieth
        and a hundredth of the literal are tried, and the verified one with the lowest loss after
        the probe steps is proposed. No edit if the rate is not written as a number, here or as the
        only entry, option or field of its name.

    When it may be wrong:
        Weights before a normalisation, whose scale does not matter, and losses that may rise for a
        while, such as in adversarial training.

    Source:
        Measured: over 4,540 runs, SGD diverged in 40 % of those with ratios of 0.03 to 0.3 and in
        76 % above 0.3. Over 256 runs, 41 of them diverging, the limit 0.1 finds 37 with 9
        false positives, 0.3 finds 35 with 6. For Adam the limit 1 has 1 false positive in 275
        healthy runs.
        cs231n notes: update to weight ratio "around 1e-3".
    """

    code: ClassVar[str] = "GS108"
    name: ClassVar[str] = "update-too-large"
    level: ClassVar[Severity] = "warning"
    argument: ClassVar[ArgumentKind | None] = "learning rate"
    judges_learning: ClassVar[bool] = True
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="update_ratio"),)
    fix: ClassVar[FixRule | None] = FixRule(safety="unsafe", is_search=True)

    sgd_warning: float = 0.1
    """Ratio. Measured: 37 of 41 diverging runs."""
    sgd_error: float = 0.3
    """Ratio. Measured: 76 % diverge above it."""
    adaptive_note: float = 0.1
    """Ratio. Measured: no healthy run above it diverged, so it is only a note."""
    adaptive_warning: float = 0.3
    """Ratio. Source: as above."""
    adaptive_error: float = 1.0
    """Ratio: one step changes the weights by their own size. Source: 1 of 275 healthy runs."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if Divergence(context).steps:
            return Optimizers(context).skip_reason()
        return UpdateRatios(context).skip_reason()

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the typical step is too large, or one on the way to the judged one."""
        ratios = UpdateRatios(context)
        optimizer = ratios.optimizers.targets
        if optimizer is None:
            return
        diverged = self._diverged(context, ratios, optimizer)
        if diverged is not None or ratios.skip_reason() is not None:
            yield from () if diverged is None else (diverged,)
            return
        limits = self._limits(is_sgd=optimizer.family == "sgd")
        reached = [(level, limit) for level, limit in limits if ratios.typical >= limit]
        mildest = limits[-1][1]
        context.measured(
            self.code,
            "update_ratio",
            ratios.typical,
            mildest,
            subject=optimizer.class_name,
            site=optimizer.site,
        )
        if not reached:
            return
        level, limit = reached[0]
        if context.run is not None:
            yield from self._in_run(context, ratios, optimizer, level, limit)
            return
        falls = _falls(context)
        severity = self._severity(context, level, falls)
        if severity is None:
            return
        lowest = limits[-1][1]
        yield self.finding(
            context,
            message=(
                f"a step of {optimizer.class_name}{ratios.rates} changes the weights by "
                f"{_share(ratios.typical)} their norm" + _loss_text(context, falls)
            ),
            remedy="lower the learning rate: a ratio of 0.001 to 0.01 is healthy",
            site=optimizer.site,
            severity=severity,
            parameters=[i for i, ratio in ratios.by_parameter.items() if ratio >= lowest],
            evidence={
                "update_ratio": ratios.typical,
                "limit": limit,
                "learning_rate": max(ratios.learning_rates, default=None),
                "matrices": len(ratios.by_parameter),
                "loss_falls": falls,
            },
        )

    def _diverged(
        self, context: RuleContext, ratios: UpdateRatios, optimizer: OptimizerRecord
    ) -> Finding | None:
        """Return the finding for steps on the way that drove the weights off; they come first."""
        divergence = Divergence(context)
        limit = self._limits(is_sgd=optimizer.family == "sgd")[0][1]
        step = divergence.step_beyond(limit)
        if step is None:
            return None
        growth = divergence.growths[step]
        return self.finding(
            context,
            message=(
                f"step {step + 1} of {optimizer.class_name}{ratios.rates} changes the weights by "
                f"{_share(growth)} their norm or more; {divergence.loss_text}"
            ),
            remedy="lower the learning rate: a ratio of 0.001 to 0.01 is healthy",
            site=optimizer.site,
            severity="error",
            parameters=optimizer.parameters,
            evidence={
                "update_ratio": growth,
                "limit": limit,
                "learning_rate": max(ratios.learning_rates, default=None),
                "loss_falls": False,
            },
            explains=_CONSEQUENCES,
        )

    def _in_run(
        self,
        context: RuleContext,
        ratios: UpdateRatios,
        optimizer: OptimizerRecord,
        level: Severity,
        limit: float,
    ) -> Iterator[Finding]:
        """Yield the finding for a step of a run after which the loss rose."""
        losses, before = (
            ((), ()) if context.run is None else (context.run.losses, context.run.losses_before)
        )
        # Line searches, such as that of L-BFGS, take large steps and return.
        if level == "note" or optimizer.family == "other":
            return
        course = context.run.losses_of_line if context.run is not None else ()
        is_ruined = context.run is not None and context.run.is_only_line and stays_up(course)
        if is_ruined:
            # The message speaks of as many steps as for another rise.
            losses = course[: len(losses)]
        elif not rises_beyond_noise(losses, before):
            return
        # A loss that was fine until it broke was broken by an operation, such as the log of zero.
        is_driven_off = rises_by(losses, _WARNS)
        worst = max(losses[1:], key=lambda loss: loss if isfinite(loss) else float("inf"))
        yield self.finding(
            context,
            message=(
                f"a step of {optimizer.class_name}{ratios.rates} changes the weights by "
                f"{_share(ratios.typical)} their norm; the loss goes from {short(losses[0], 4)} to "
                f"{short(worst, 4)} within {len(losses) - 1} steps"
                f"{', and never comes below its start' if is_ruined else ''}"
            ),
            remedy="lower the learning rate: a ratio of 0.001 to 0.01 is healthy",
            site=optimizer.site,
            severity=level,
            parameters=optimizer.parameters,
            evidence={
                "update_ratio": ratios.typical,
                "limit": limit,
                "learning_rate": max(ratios.learning_rates, default=None),
                "matrices": len(ratios.by_parameter),
                "loss_falls": False,
            },
            explains=[code for code in _CONSEQUENCES if is_driven_off or code not in _NAN],
        )

    def _severity(
        self, context: RuleContext, level: Severity, falls: bool | None
    ) -> Severity | None:
        if falls is None:
            return _IF_NOT_TRIED[level]
        if not all(map(isfinite, _losses(context))):
            return "warning" if level == "note" else "error"
        return _IF_LOSS_FALLS[level] if falls else level

    def _limits(self, *, is_sgd: bool) -> list[tuple[Severity, float]]:
        if is_sgd:
            return [("error", self.sgd_error), ("warning", self.sgd_warning)]
        return [
            ("error", self.adaptive_error),
            ("warning", self.adaptive_warning),
            ("note", self.adaptive_note),
        ]


def _losses(context: RuleContext) -> list[float]:
    steps = [context.first.step, *(probe.step for probe in context.probes)]
    return [step.loss for step in steps if step is not None and step.loss is not None]


def _falls(context: RuleContext) -> bool | None:
    """Return whether the loss falls and never rises above its start, None if that is not known."""
    losses = _losses(context)
    if len(losses) < 2 or not isfinite(losses[0]):
        return None
    return all(isfinite(loss) and loss < losses[0] for loss in losses[1:])


def _loss_text(context: RuleContext, falls: bool | None) -> str:
    losses = _losses(context)
    if falls is None:
        return ""
    return (
        f"; the loss goes from {short(losses[0], 4)} to {short(losses[-1], 4)} in "
        f"{len(losses) - 1} "
        f"step{'s' if len(losses) > 2 else ''}"
    )


def _share(ratio: float) -> str:
    return f"{ratio:.0%} of" if ratio < 1 else times_text(ratio)
