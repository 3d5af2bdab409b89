"""GS110: gradients that are smaller than Adam's epsilon."""

from collections.abc import Iterator
from math import log2
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import GradientStat
from gradscope.recording.repetitions import NOT_IN_EVERY_STEP
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers
from gradscope.rules.helpers.updates import UpdateRatios
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonDominates(Rule):
    """Adam's epsilon is larger than most elements of the gradient.

    What it finds:
        Weight matrices whose gradient is mostly smaller than the epsilon that Adam and similar
        optimizers add to the root of the mean squared gradient.

    Why it matters:
        Adam's step is the learning rate whatever the gradient's scale, as long as the gradient is
        above epsilon. Below, the step shrinks with the gradient, and those weights barely learn.

    How it is measured:
        The rule takes the elements of the weight matrices' gradients that are not exactly zero, and
        the share of them below the epsilon of their parameter group. A share of `warning` is a
        warning, a share of `error` an error. The finding is one level milder if some matrices are
        well above epsilon, because then the loss is not the cause. It is at most a warning if the
        loss is below `small_loss`. If epsilon is above `common`, somebody chose it: that is a note,
        and a warning only if a share of `error` is below it and the first step changes the weights
        by less than `stands` of their norm. Such an optimizer steps as SGD does with the learning
        rate over epsilon.

    How to fix it:
        Raise the scale of the loss, for example by not dividing it twice, or pass a smaller `eps`.

    When it may be wrong:
        A model that has converged, and branches that start damped, such as under a layer scale of
        1e-6.

    Source:
        Measured: accuracy changes by -0.01 at a share of 0.17, -0.08 at 0.65, -0.31 at 0.997; all
        is chance at 1. Of 86 healthy models the limit 0.5 accuses two, both with a layer scale of
        1e-6. Kingma and Ba 2015, algorithm 1.
    """

    code: ClassVar[str] = "GS110"
    name: ClassVar[str] = "epsilon-dominates"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "always"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_below_epsilon"),)

    warning: float = 0.5
    """Share of the nonzero elements, 0 to 1. Measured: accuracy changes by -0.08 at 0.65."""
    error: float = 0.9
    """Share of the nonzero elements, 0 to 1. Measured: accuracy changes by -0.31 at 0.997."""
    common: float = 1e-7
    """Largest default epsilon; a larger one was chosen by the user. Source: torch's defaults are
    1e-8 and below.
    """
    stands: float = 1e-4
    """Update over weight norm, the median of the matrices. Source: the limit of update-too-small
    for SGD, of whose runs below it 3 % learn in 250 steps."""
    small_loss: float = 1e-3
    """Loss below which training may have converged. Chosen: a scaled-down loss looks the same."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return Optimizers(context).skip_reason() or _why_unsorted(context)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if most elements are below epsilon."""
        optimizers = Optimizers(context)
        shares = {
            index: (share, counted, epsilon)
            for index, epsilon in _epsilons(optimizers).items()
            if (stat := context.parameter_stat(index)) is not None and stat.gradient is not None
            for share, counted in [_below(stat.gradient, epsilon)]
            if counted
        }
        total = sum(counted for _, counted, _ in shares.values())
        if not total or optimizers.targets is None:
            return
        share = sum(part * counted for part, counted, _ in shares.values()) / total
        context.measured(
            self.code,
            "share_below_epsilon",
            share,
            self.warning,
            subject=optimizers.targets.class_name,
            site=optimizers.targets.site,
        )
        if share < self.warning:
            return
        affected = [index for index, (part, _, _) in shares.items() if part >= self.warning]
        epsilon = max(shares[index][2] for index in affected)
        is_all = len(affected) == len(shares)
        severity = self._severity(context, share, epsilon, is_all=is_all)
        yield self.finding(
            context,
            message=(
                f"{_percent(share)} of the gradient's elements are below {short(epsilon, 6)}, "
                f"the epsilon "
                f"of {optimizers.targets.class_name}: its steps shrink with them"
            ),
            remedy="scale the loss up, or pass a smaller `eps`",
            site=optimizers.targets.site,
            severity=severity,
            parameters=affected,
            evidence={
                "share_below_epsilon": share,
                "limit": self.error if share >= self.error else self.warning,
                "epsilon": epsilon,
            },
            count=len(affected),
        )

    def _severity(
        self, context: RuleContext, share: float, epsilon: float, *, is_all: bool
    ) -> Severity:
        if epsilon > self.common:
            ratios = UpdateRatios(context)
            is_known = is_all and share >= self.error and ratios.skip_reason() is None
            return "warning" if is_known and ratios.typical < self.stands else "note"
        if not is_all:
            return "warning" if share >= self.error else "note"
        loss = None if context.first.step is None else context.first.step.loss
        is_small = loss is not None and abs(loss) < self.small_loss
        return "error" if share >= self.error and not is_small else "warning"


def _epsilons(optimizers: Optimizers) -> dict[int, float]:
    """Return the epsilon for every weight matrix, if the target's optimizer has one."""
    target = optimizers.targets
    groups = () if target is None or target.family != "adaptive" else target.groups
    parameters = optimizers.context.recording.parameters
    return {
        index: group.epsilon
        for group in groups
        for index in group.parameters
        if group.epsilon and len(parameters[index].shape.dims) >= 2
    }


def _why_unsorted(context: RuleContext) -> str | None:
    """Return why no gradient's elements are sorted by magnitude, None where some are."""
    stats = context.first.parameter_stats.values()
    alive = [stat.gradient for stat in stats if stat.gradient and stat.gradient.norm]
    is_sorted = any(gradient.magnitudes for gradient in alive)
    return None if is_sorted or not alive else NOT_IN_EVERY_STEP


def _below(gradient: GradientStat, epsilon: float) -> tuple[float, float]:
    """Return the share of the elements that are not zero below a limit, and their number."""
    maximum, zero_share = gradient.absolute_maximum, gradient.zero_share
    if maximum is None or zero_share is None:
        return 0.0, 0.0
    counted = gradient.numel * (1 - zero_share)
    if gradient.is_broken or not gradient.norm or not counted:
        return 0.0, 0.0
    if maximum < epsilon:
        return 1.0, counted
    # Elements are counted by powers of two. Of the octave that epsilon divides, a part is below it.
    limit, below, total = log2(epsilon) - (gradient.lowest_exponent or 0), 0.0, 0
    for octave, number in enumerate(gradient.magnitudes or ()):
        below += number * min(1.0, max(0.0, limit - octave))
        total += number
    return (below / total, counted) if total else (0.0, 0.0)


def _percent(share: float) -> str:
    # One decimal would round 99.96 % up to 100 %, which is not all.
    return "all" if share == 1 else f"{min(share, 0.999):.1%}"
