"""GS112: recurrent layers whose gradient fades before the start of the sequence."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.spine import Spines
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.growth_position import is_recurrent, related_lines, trend_position
from gradscope.rules.helpers.recurrence import FADED, Memory, fadings, memories
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule

_FORGET = "initialise the forget gate's bias to 1 to 3 (the second quarter of"
_UPDATE = "initialise the update gate's bias to 1 to 3 (the second third of"
_REMEDIES = {
    "LSTM": f"{_FORGET} `bias_hh_l0`)",
    "LSTMCell": f"{_FORGET} `bias_hh`)",
    "GRU": f"{_UPDATE} `bias_hh_l0`)",
    "GRUCell": f"{_UPDATE} `bias_hh`)",
}
_LAYERS = ("LSTM", "GRU", "RNN")
_PLAIN = "initialise the recurrent weights with `nn.init.orthogonal_`, or use an LSTM or GRU"

_SMALLEST = 300
"""Orders of magnitude below 1 up to which Python has numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortMemoryHorizon(Rule):
    """A recurrent layer forgets the start of a sequence before it reaches the end.

    What it finds:
        Recurrent layers and loops over time, if the loss uses only late outputs and the gradient at
        the first input has faded to less than one part in ten thousand.

    Why it matters:
        The model cannot learn from the first steps of a sequence, while the loss falls because of
        the last steps. The gradients of the weights look healthy because they are sums over time.

    How it is measured:
        For each recurrent layer, the rule takes a random combination of its last output and the
        norm of its derivative with respect to the input of every time step. The slope of the
        logarithms gives the decades lost per step. Multiplied by the number of steps before the
        first output that the loss uses, they are compared with the limit. The horizon is the number
        of steps after which 1 % is left: 2 decades over the decades per step. Loops are judged
        along the operations that every gradient path crosses.
        If there are none, as with the two states of an LSTM cell, loops are judged along the calls
        of each recurrent weight. In a run, whose forward is not repeated, layers are not judged.

    How to fix it:
        Let the gates start open: a forget gate's bias of 1 to 3 in an LSTM, an update gate's of 1
        to 3 in a GRU, orthogonal weights in a plain network. Or use all outputs (their mean, or
        attention) instead of the last one.

    When it may be wrong:
        If the answer depends on the last steps only, no memory is needed. The rule does not inspect
        the data. With torch's default initialisation the horizon is about ten steps.

    Source:
        Hochreiter 1991; Pascanu et al. 2013. Measured: of 12 recurrent networks that had to recall
        their first input over 8 to 100 steps, 35 of 36 runs learned below 1.9 decades, 5 of 8 from
        there to 3.9, none of 28 above.
    """

    code: ClassVar[str] = "GS112"
    name: ClassVar[str] = "short-memory-horizon"
    level: ClassVar[Severity] = "note"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "always"
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="decades", is_logarithm=True),)

    decades: float = 4.0
    """Orders of magnitude by which the gradient fades until the first input. Measured: none of 28
    runs above 3.9 recalls its first input.
    """

    error_horizon: float = 2.0
    """Number of steps after which 1 % of the gradient remains, for an error. Measured: freshly
    initialised, torch's layers and cells have 4 to 10 steps; weights of std 0.01 have 1.6.
    """
    error_decades: float = 12.0
    """Orders of magnitude that an error also needs: below a factor of 1e-12, rounding hides the
    first input.
    """

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        reason = context.probe_skip_reason("horizons")
        if reason is None or not context.has_backward:
            return reason
        # Loops are judged by the step itself; layers need the probe.
        classes = {module.class_name for module in context.recording.modules}
        is_judged = any(True for _ in self.check(context)) or classes.isdisjoint(_LAYERS)
        return None if is_judged else reason

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for all recurrent layers, and one for a loop over time."""
        every = list(memories(context))
        for memory in every:
            site = context.recording.modules[memory.record.module].site
            context.measured(
                self.code, "decades", memory.faded, self.decades, subject=memory.path, site=site
            )
        short = [memory for memory in every if memory.faded >= self.decades]
        if short:
            yield self._layers(context, short)
        loops = list(self._loop(context))
        yield from loops or self._cells(context)

    def _severity(self, horizon: float, decades: float) -> Severity:
        """Return the level: a layer that remembers only a few steps is an error."""
        is_none = horizon <= self.error_horizon and decades >= self.error_decades
        return "error" if is_none else "note"

    def _cells(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the recurrent weight whose calls fade the most."""
        found = max(fadings(context), key=lambda one: one.decades, default=None)
        if found is None or found.decades < self.decades:
            return
        slope = found.slope
        last = found.calls[-1]
        yield self.finding(
            context,
            message=(
                f"the loop remembers about {FADED / slope:.0f} steps: 1 % of the gradient remains "
                f"after these, and {_left(found.decades)} of it after {len(found.calls)}"
            ),
            remedy=_remedy_of_loop(_class_of(context, last)),
            site=_called_at(context, last),
            severity=self._severity(FADED / slope, found.decades),
            evidence={
                "horizon": FADED / slope,
                "steps": len(found.calls),
                "decades": found.decades,
                "decades_limit": self.decades,
                "decades_per_step": slope,
            },
        )

    def _layers(self, context: RuleContext, short: list[Memory]) -> Finding:
        worst = min(short, key=lambda memory: memory.horizon)
        module = context.recording.modules[worst.record.module]
        call = worst.record.call_site
        more = f" (and {len(short) - 1} more)" if len(short) > 1 else ""
        opening = _REMEDIES.get(module.class_name, _PLAIN)
        return self.finding(
            context,
            message=(
                f"{worst.path or 'the model'}{more} remembers about {worst.horizon:.0f} steps of "
                f"{worst.record.steps}: 1 % of the gradient remains after these, and "
                f"{_left(worst.faded)} of it at the first input"
            ),
            remedy=f"{opening}, or use all outputs (their mean, or attention), not only the last",
            site=call if module.site is None else module.site,
            related=[] if module.site is None else [context.related(call, "called here")],
            severity=self._severity(worst.horizon, worst.faded),
            modules=[memory.path for memory in short],
            evidence={
                "horizon": worst.horizon,
                "steps": worst.record.steps,
                "first_output_used": worst.record.read_from,
                "decades": worst.faded,
                "decades_limit": self.decades,
                "decades_per_step": worst.slope,
            },
            count=len(short),
        )

    def _loop(self, context: RuleContext) -> Iterator[Finding]:
        trend = context.shared(Spines).first.loss
        if trend is None or -trend.steady < self.decades or not is_recurrent(context, trend):
            return
        position = trend_position(context, trend)
        horizon = FADED / -trend.slope
        yield self.finding(
            context,
            message=(
                f"the loop remembers about {horizon:.0f} steps: 1 % of the gradient remains after "
                f"these, and {_left(-trend.decades)} of it after {len(trend.matched)}"
            ),
            remedy=_remedy_of_loop(position.what),
            site=position.call_site,
            related=related_lines(context, position),
            severity=self._severity(horizon, -trend.decades),
            evidence={
                "horizon": horizon,
                "steps": len(trend.matched),
                "decades": -trend.decades,
                "decades_limit": self.decades,
                "decades_per_step": -trend.slope,
            },
        )


def _remedy_of_loop(class_name: str) -> str:
    opening = _REMEDIES.get(class_name, _PLAIN)
    return f"{opening}, or use all states (their mean, or attention), not only the last"


def _class_of(context: RuleContext, node: NodeRecord) -> str:
    """Return the class of the module that makes a call."""
    if node.module_call is None:
        return ""
    call = context.recording.calls[node.module_call]
    return context.recording.modules[call.module].class_name


def _called_at(context: RuleContext, node: NodeRecord) -> Site | None:
    """Return the line that makes a call of a loop: of a module outside torch, or the operation."""
    if node.site is not None:
        return context.site(node.site)
    position = node.module_call
    while position is not None:
        call = context.recording.calls[position]
        if call.site is not None:
            return context.site(call.site)
        position = call.parent
    return None


def _left(decades: float) -> str:
    """Return the share of a gradient that is left after some orders of magnitude: `4e-10`."""
    return short(10**-decades, 1) if decades < _SMALLEST else f"1e-{decades:.0f}"
