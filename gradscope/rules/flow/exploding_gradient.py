"""GS101: gradients that grow with depth or over time."""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.analysis.spine import Spines, Trend
from gradscope.frozen import dataclass
from gradscope.phrasing import fold_text, times_text
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.growth_position import (
    MATRICES,
    Position,
    arrives,
    behind,
    ends,
    forward_rise,
    initialisation_site,
    is_recurrent,
    jump_position,
    named,
    norm_of,
    pace,
    related_lines,
    trend_position,
)
from gradscope.rules.helpers.recurrence import (
    Memory,
    growth_later,
    memories,
    origin_of,
    recurrences,
)
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingGradient(Rule):
    """The gradient grows from layer to layer, or from one time step to the one before.

    What it finds:
        Stacks of layers and recurrent loops that multiply the gradient in every layer or time step
        during backward, single operations (or layers that are one operation, such as a fused LSTM)
        that raise it by orders of magnitude, and forward values that grow until they overflow.

    Why it matters:
        One step moves the weights by far too much: the loss jumps and becomes NaN. With clipping,
        the first layers dominate.

    How it is measured:
        Along the operations that every gradient path crosses, from the last one that takes weights
        to the input, the rule compares norms between operations of the same type. The result is the
        largest rise in orders of magnitude (decades); a single operation counts only up to the
        second largest rise. From 1.5 decades it is a note, from 2 a warning, from 4 an error. The
        jump of a single operation is the difference of the median norms before and after it; at
        least half of its decades must arrive at a parameter. Loops that multiply by the same weight
        on one line, or by other tensors within one forward, are compared from their last quarter to
        the first. For recurrent layers the derivative of the last output with respect to each input
        is measured. The rise must persist after the probing steps. Without probing steps it is an
        error only if the median layer, repeated, rises as far; otherwise it is at most a warning.
        If the loss or the gradient is not finite, the rule applies the same test to the values of
        the forward.

    How to fix it:
        Initialise smaller (Xavier, He, orthogonal for recurrent weights), normalise each residual
        branch at its start, scale residual branches down with depth, add residual connections
        around layers with batch normalisation. Clip the gradient norm if a loop needs a long
        memory.

    Fix safety:
        Unsafe: the edits change what the model computes. Other initialisations replace the one on
        the line, ReLU, GELU or tanh the activation, also with an initialisation that suits it, and
        a LayerNorm is inserted between the layers and activations of an `nn.Sequential`. All are
        tried, and the verified edit with the lowest loss after the probe steps is proposed. No edit
        if none of these is on a line of the finding.

    When it may be wrong:
        Models that are far from their usual state at the first step, such as zero tokens before a
        layer normalisation. Probing steps rule this out. Adam trains some of the networks that
        explode with SGD.

    Source:
        Pascanu et al. 2013, "On the difficulty of training recurrent neural networks"; Yang et al.
        2019, "A mean field theory of batch normalization". Measured: of 327 small networks trained
        with SGD and Adam, 94 % and 95 % learned below 1 decade, 22 % and 56 % at 1.5 to 2, 20 % and
        40 % at 2 to 3, none and 26 % above 4; healthy networks reach 1.1 decades.
    """

    code: ClassVar[str] = "GS101"
    name: ClassVar[str] = "exploding-gradient"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    explains: ClassVar[tuple[str, ...]] = ("GS107", "GS108")
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="decades", is_logarithm=True),)
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe", function="level_gradient", is_search=True
    )

    note_decades: float = 1.5
    """Orders of magnitude by which the gradient grows. Measured: with SGD, 22 % learn at 1.5 to 2.
    """
    warning_decades: float = 2.0
    """Orders of magnitude, as above. Measured: 20 % learn with SGD at 2 to 3, 40 % with Adam."""
    error_decades: float = 4.0
    """Orders of magnitude, as above. Measured: with SGD nothing learns above 4; with Adam 26 % do.
    """
    jump_decades: float = 3.0
    """Orders of magnitude at a single operation, or over the sequence of a recurrent layer.
    Measured: one of 86 healthy networks exceeds it at its first step, none after three steps.
    """
    jump_error_decades: float = 6.0
    """Orders of magnitude for an error. Measured: recurrent networks of gain 3 over 50 steps reach
    6 to 17.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.first.nodes else "no graph was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the gradient explodes."""
        # Growth of the forward explains what is not finite. A trend of many layers says more than
        # one jump.
        found = self._overflowing(context) or self._growing(context) or self._through_time(context)
        found = found or self._recurring(context) or self._jumping(context)
        if found is not None:
            yield found

    def _limit(self, severity: Severity) -> float:
        limits = {"note": self.note_decades, "warning": self.warning_decades}
        return limits.get(severity, self.error_decades)

    def _growing(self, context: RuleContext) -> Finding | None:
        spines = context.shared(Spines)
        trend, later = spines.first.growth, spines.later
        if trend is None:
            return None
        lasting = later.growth.steady if later and later.growth else trend.steady
        # What only the first step shows is gone in the later one: the smaller rise counts.
        decades = min(trend.steady, lasting)
        limits: dict[Severity, float] = {
            "error": self.error_decades,
            "warning": self.warning_decades,
            "note": self.note_decades,
        }
        context.measured(
            self.code, "decades", decades, self.note_decades, subject=ends(context, trend)
        )
        # Only a few layers can be in a transient state of the first step.
        is_certain = spines.has_later or trend.typical >= self.error_decades
        severity = _level(decades, limits, lasts=is_certain)
        if severity is None:
            return None
        unit = "time step" if is_recurrent(context, trend) else "layer"
        message = (
            f"the gradient grows {fold_text(decades)} towards the input, {ends(context, trend)}"
            f"{pace(trend, 'larger', unit)}"
        )
        parameters = behind(context, trend.matched[0].node, trend.matched[0].node.depth)
        return self._finding(context, trend, decades, severity, message, parameters)

    def _overflowing(self, context: RuleContext) -> Finding | None:
        """Return the finding where growing values explain that the loss is not finite."""
        if _is_finite(context):
            return None
        trend = context.shared(Spines).forward_growth()
        # Operations are matched from the loss to the input: values that grow in the forward fall
        # this way.
        if trend is None or -trend.steady < self.error_decades:
            return None
        decades = -trend.steady
        message = (
            f"the values of the forward grow {fold_text(decades)} from "
            f"{named(context, trend.matched[-1])} to {named(context, trend.matched[0])}, "
            f"{times_text(10**-trend.slope)} per layer over {len(trend.matched)} layers, until "
            f"they "
            "overflow"
        )
        everything = tuple(context.parameter_nodes)
        return self._finding(context, trend, decades, "error", message, everything)

    def _through_time(self, context: RuleContext) -> Finding | None:
        recurrent = list(memories(context))
        for memory in recurrent:
            context.measured(
                self.code, "decades", memory.growth, self.jump_decades, subject=memory.path
            )
        growing = [m for m in recurrent if m.growth >= self.jump_decades]
        if not growing:
            return None
        worst = max(growing, key=lambda memory: memory.growth)
        owner = worst.record.module
        calls = worst.record.call_site
        made = context.recording.modules[owner].site
        # The line that draws the weights is to be changed, where there is one.
        sites = (initialisation_site(context, [owner]), made, calls)
        site = next((one for one in sites if one is not None), None)
        return self.finding(
            context,
            message=(
                f"the gradient through {worst.path or 'the model'} grows "
                f"{fold_text(worst.growth)} over the {worst.record.steps} steps of a sequence, "
                f"{times_text(10**-worst.slope)} per time step during backward"
            ),
            remedy=_TIME_REMEDY,
            site=site,
            related=[
                context.related(other, message)
                for other, message in ((made, "made here"), (calls, "called here"))
                if other != site
            ],
            severity="error" if worst.growth >= self.jump_error_decades else "warning",
            parameters=_parameters_of(context, growing),
            evidence={
                "decades": worst.growth,
                "decades_limit": self.jump_decades,
                "decades_per_step": -worst.slope,
                "steps": worst.record.steps,
            },
            count=len(growing),
        )

    def _recurring(self, context: RuleContext) -> Finding | None:
        """Return the finding where losses join at every step of a recurrence."""
        found = max(recurrences(context), key=lambda one: one.decades, default=None)
        if found is None:
            return None
        spines = context.shared(Spines)
        later = growth_later(context, spines.later_views, found)
        decades = found.decades if later is None else min(found.decades, later)
        limits: dict[Severity, float] = {
            "error": self.error_decades,
            "warning": self.warning_decades,
        }
        severity = _level(decades, limits, lasts=spines.has_later)
        if severity is None:
            return None
        name, site, others = origin_of(context, found)
        count = len(found.calls)
        return self.finding(
            context,
            message=(
                f"the gradient grows {fold_text(decades)} through {count} iterations of a loop, "
                f"more than the sum over {count} losses: {name} enlarges it each time"
            ),
            remedy=_FACTOR_REMEDY if found.parameter is None else _TIME_REMEDY,
            site=site,
            related=others,
            severity=severity,
            parameters=[
                *(() if found.parameter is None else (found.parameter,)),
                *behind(context, found.calls[0], found.calls[-1].depth),
            ],
            evidence={
                "decades": decades,
                "decades_limit": self._limit(severity),
                "calls": count,
            },
        )

    def _jumping(self, context: RuleContext) -> Finding | None:
        spines = context.shared(Spines)
        jump, later = spines.first.jump, spines.later
        if jump is None:
            return None
        lasting = later.jump.decades if later and later.jump else jump.decades
        decades = min(jump.decades, lasting)
        limits: dict[Severity, float] = {
            "error": self.jump_error_decades,
            "warning": self.jump_decades,
        }
        severity = _level(decades, limits, lasts=spines.has_later)
        if severity is None:
            return None
        before, after = jump.matched
        parameters = behind(context, before.node, before.node.depth)
        if not arrives(context, 10 ** (before.level + self.jump_decades / 2), parameters):
            return None
        position = jump_position(context, jump)
        through = f"{position.count} iterations of a loop" if position.count > 1 else position.what
        return self.finding(
            context,
            message=(
                f"the gradient grows {fold_text(decades)} through {through}, from "
                f"a norm of about {norm_of(before)} to {norm_of(after)}"
            ),
            remedy=_TIME_REMEDY if position.count > 1 else _JUMP_REMEDY,
            site=position.site,
            related=related_lines(context, position),
            severity=severity,
            parameters=parameters,
            evidence={
                "decades": decades,
                "decades_limit": self.jump_decades,
                "operation": position.operation,
                "calls": position.count,
            },
        )

    def _finding(
        self,
        context: RuleContext,
        trend: Trend,
        decades: float,
        severity: Severity,
        message: str,
        parameters: tuple[int, ...],
    ) -> Finding:
        position = trend_position(context, trend)
        rise = forward_rise(context, trend)
        return self.finding(
            context,
            message=message,
            remedy=_remedy(context, trend, position, rise),
            site=position.site,
            related=related_lines(context, position),
            severity=severity,
            parameters=parameters,
            evidence={
                "decades": decades,
                "decades_limit": self._limit(severity),
                "decades_per_layer": abs(trend.slope),
                "layers": len(trend.matched),
                "operation": position.operation,
                "forward_decades": rise,
                "lasts": context.shared(Spines).has_later,
            },
            count=len(parameters),
        )


_TIME_REMEDY = (
    "initialise the recurrent weights with `nn.init.orthogonal_`, clip the gradient norm with "
    "`clip_grad_norm_`, or backpropagate through fewer steps by detaching the state"
)
_FACTOR_REMEDY = (
    "keep the factor of each step at or below 1 in magnitude, such as exp(-x) for x > 0"
)
_JUMP_REMEDY = (
    "check what this operation multiplies or divides by: scale its input, or initialise its "
    "weights smaller"
)


def _level(decades: float, limits: Mapping[Severity, float], *, lasts: bool) -> Severity | None:
    """Return the level for a growth; no error if it is unknown whether it lasts."""
    for level, limit in limits.items():
        if decades >= limit:
            return "warning" if level == "error" and not lasts else level
    return None


def _is_finite(context: RuleContext) -> bool:
    step = context.first.step
    if step is not None and step.loss is not None and not math.isfinite(step.loss):
        return False
    stats = context.first.parameter_stats.values()
    return all(stat.gradient is None or not stat.gradient.is_broken for stat in stats)


def _parameters_of(context: RuleContext, growing: list[Memory]) -> list[int]:
    owners = {memory.record.module for memory in growing}
    return [
        parameter.index for parameter in context.recording.parameters if parameter.module in owners
    ]


def _remedy(context: RuleContext, trend: Trend, position: Position, rise: float | None) -> str:
    if is_recurrent(context, trend):
        return _TIME_REMEDY
    if "Norm" in position.operation:
        return (
            "add residual connections around the layers: without them each normalisation divides "
            "by a standard deviation that the next layer does not restore"
        )
    if position.operation in MATRICES:
        return (
            f"initialise {position.what} smaller, as `nn.init.xavier_normal_(layer.weight)` or "
            "`nn.init.kaiming_normal_(layer.weight)` before ReLU, or normalise between the layers"
        )
    if rise is not None and rise >= abs(trend.decades) / 2:
        return (
            "the values of the forward grow too: normalise each residual branch at its start, or "
            "scale the branches down with depth"
        )
    return "normalise between the layers, or scale each branch down before it is added"
