"""GS102: gradients that shrink with depth."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.spine import Spines, Trend
from gradscope.frozen import dataclass
from gradscope.phrasing import fold_text
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.growth_position import (
    MATRICES,
    Position,
    behind,
    ends,
    forward_rise,
    half_way,
    is_recurrent,
    pace,
    related_lines,
    trend_position,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_SHRINKING = 0.05
"""Orders of magnitude below which a decrease does not show that a branch opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradient(Rule):
    """The gradient shrinks from layer to layer until the first ones cannot learn.

    What it finds:
        Stacks of layers that each pass on only a part of the gradient. The first layers get
        gradients that are orders of magnitude smaller than those of the last layers.

    Why it matters:
        The first layers stay at their initial values, and the last ones learn from random features.
        The loss falls a little and then stalls.

    How it is measured:
        Along the operations that every gradient path crosses, from the last one that takes weights
        to the input, the rule compares norms between operations of the same type. The result is the
        largest fall in orders of magnitude (decades). A single operation counts only up to the
        second largest fall, and the fall must persist after the probing steps. From 2 decades it is
        a note, from 3 a warning, from 6 an error; with SGD, whose steps shrink with the gradient,
        each is one level higher.

    How to fix it:
        In this order: initialise for the activation (He for ReLU, Xavier for tanh; the default of
        `nn.Linear` has a third of the variance that keeps a linear layer level); ReLU or GELU in
        place of sigmoid; residual connections with a normalisation before each branch; batch or
        layer normalisation between the layers.

    Fix safety:
        Unsafe: the edits change what the model computes. Other initialisations replace the one on
        the line, ReLU, GELU or tanh the activation, also with an initialisation that suits it, and
        a LayerNorm is inserted between the layers and activations of an `nn.Sequential`. All are
        tried, and the verified edit with the lowest loss after the probe steps is proposed. No edit
        if none of these is on a line of the finding.

    When it may be wrong:
        Branches that are initialised to zero and open in the first steps. The rule skips them if
        they are in parallel to the main path or open by the end of the probe. A single layer that
        passes on little by design, such as a decoder's attention to an encoder, is not a trend.

    Source:
        Pascanu et al. 2013, "On the difficulty of training recurrent neural networks"; Schoenholz
        et al. 2017, "Deep information propagation". Measured: of 374 small networks trained with
        SGD and Adam, 95 % and 95 % learned below 1 decade, 11 % and 61 % at 2 to 3, none and 60 %
        at 3 to 4, none and 9 % at 6 to 8; no alarm on 86 healthy networks.
    """

    code: ClassVar[str] = "GS102"
    name: ClassVar[str] = "vanishing-gradient"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    explains: ClassVar[tuple[str, ...]] = ("GS109", "GS110")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="decades", is_logarithm=True),)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe", function="level_gradient", is_search=True
    )
    needs: ClassVar[Needs] = (has_backward,)

    note_decades: float = 2.0
    """Orders of magnitude by which the gradient shrinks. Measured: with SGD, 11 % learn at 2 to 3.
    """
    warning_decades: float = 3.0
    """Orders of magnitude, as above. Measured: with SGD nothing learns above 3."""
    error_decades: float = 6.0
    """Orders of magnitude, as above. Measured: with Adam, 9 % learn at 6 to 8, and nothing above 8.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the gradient vanishes."""
        spines = context.shared(Spines)
        trend = spines.first.loss
        if trend is None:
            return
        later = spines.later
        lasting = trend.steady if later is None or later.loss is None else later.loss.steady
        # The smaller fall counts: a branch may open in the steps between.
        decades = min(-trend.steady, -lasting)
        context.measured(
            self.code, "decades", decades, self.note_decades, subject=ends(context, trend)
        )
        severity = self._severity(context, decades)
        opens = lasting > trend.steady + _SHRINKING and _has_closed_branch(context, trend)
        if severity is None or opens:
            return
        # What lies behind the middle of the fall has lost at least half of its orders of magnitude.
        starved = behind(context, trend.between[0].node, half_way(trend).node.depth)
        if is_recurrent(context, trend):
            # Weights that every time step uses learn from the last ones.
            starved = behind(context, trend.between[0].node, trend.matched[-1].node.depth + 1)
            if not starved:
                return
        yield self._finding(context, trend, decades, severity, starved)

    @property
    def _limits(self) -> tuple[float, float, float]:
        return self.note_decades, self.warning_decades, self.error_decades

    def _severity(self, context: RuleContext, decades: float) -> Severity | None:
        levels: tuple[Severity, ...] = ("note", "warning", "error", "error")
        reached = sum(decades >= limit for limit in self._limits)
        if not reached:
            return None
        return levels[reached if is_sgd(context) else reached - 1]

    def _finding(
        self,
        context: RuleContext,
        trend: Trend,
        decades: float,
        severity: Severity,
        starved: tuple[int, ...],
    ) -> Finding:
        position = trend_position(context, trend)
        rise = forward_rise(context, trend)
        return self.finding(
            context,
            message=(
                f"the gradient shrinks {fold_text(decades)} towards the input, "
                f"{ends(context, trend)}{pace(trend, 'smaller', 'layer')}, "
                f"most of it in {position.what}"
            ),
            remedy=_remedy(position, rise, decades),
            site=position.site,
            related=related_lines(context, position),
            severity=severity,
            parameters=starved,
            evidence={
                "decades": decades,
                "decades_limit": max(limit for limit in self._limits if limit <= decades),
                "decades_per_layer": trend.slope,
                "layers": len(trend.matched),
                "operation": position.operation,
                "forward_decades": rise,
            },
            count=len(starved),
        )


def is_sgd(context: RuleContext) -> bool:
    """Return whether the user's optimizer is plain SGD, whose steps scale with the gradient."""
    return (context.recording.target.optimizer or "").startswith("SGD(")


def _has_closed_branch(context: RuleContext, trend: Trend) -> bool:
    """Return whether weights in parallel to a trend get no gradient yet."""
    faded = set(behind(context, trend.between[0].node, trend.matched[-1].node.depth))
    return any(
        stat.reach == "zero"
        and len(context.recording.parameters[stat.parameter].shape.dims) > 1
        and stat.parameter not in faded
        for stat in context.first.parameter_stats.values()
    )


def _remedy(position: Position, rise: float | None, decades: float) -> str:
    if position.operation in ("Sigmoid", "Tanh", "Softmax"):
        name = position.operation.lower()
        return (
            f"use ReLU or GELU instead of {name} between the layers, or add residual connections "
            "with a normalisation before each branch"
        )
    if rise is not None and rise <= -decades / 2:
        return (
            f"the values of the forward shrink too: initialise {position.what} larger, as "
            "`nn.init.kaiming_normal_(layer.weight)`"
        )
    if position.operation in MATRICES:
        return (
            f"initialise {position.what} for its activation, as `nn.init.kaiming_normal_(layer."
            "weight)` before ReLU: torch's default is smaller; or normalise between the layers"
        )
    return (
        "add residual connections with a normalisation before each branch, or normalise between "
        "the layers"
    )
