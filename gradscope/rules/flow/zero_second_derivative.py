"""GS118: second derivatives that are zero everywhere."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ZeroDerivativeRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import ModuleRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule

_STRAIGHT = frozenset({"Hardtanh", "LeakyReLU", "PReLU", "RReLU", "ReLU", "ReLU6", "Threshold"})
"""Layers whose function consists of straight pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSecondDerivative(Rule):
    """A second derivative is zero everywhere, because the network consists of straight pieces.

    What it finds:
        A second call of `autograd.grad`, for a derivative of a derivative, through a network with
        ReLU, LeakyReLU, PReLU or Hardtanh: the Laplacian in a physics-informed network, the
        curvature of a distance field, or forces of an energy that are differentiated again.

    Why it matters:
        Such a network is linear between its kinks, so its second derivative is 0 at every point. No
        exception is raised. The term with the second derivative does not exist for the training:
        a heat equation without diffusion.

    How it is measured:
        Every element of the result of an `autograd.grad` is exactly zero, of 16 or more; what it
        was taken of is not all zero, and was itself computed by the derivative of an activation
        with straight pieces. Smooth activations in the same network make the result nonzero. It is
        an error if it was computed with `create_graph=True`, which means it to be trained through.

    How to fix it:
        Use a smooth activation: Tanh, SiLU, GELU, Softplus or a sine.

    When it may be wrong:
        If the second derivative is only computed to show that it is zero.

    Source:
        Raissi et al. 2019, "Physics-informed neural networks", on smooth activations; PyTorch's
        derivatives of `threshold_backward`, which are zero with respect to its input.
        Measured: exactly 0 for ReLU, ReLU6, LeakyReLU, PReLU and Hardtanh; above 0.01 for Tanh,
        SiLU, ELU, GELU, Softplus, Hardswish, SELU, CELU and Softsign, with two layers of 8 units.
    """

    code: ClassVar[str] = "GS118"
    name: ClassVar[str] = "zero-second-derivative"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("derivatives"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield one finding for all second derivatives that are zero."""
        found = context.recording.evidence_of(ZeroDerivativeRecord)
        if not found:
            return
        layers = _straight_layers(context)
        kinds = " and ".join(dict.fromkeys(one.class_name for one in layers))
        lines = dict.fromkeys(one.site for one in found)
        # The activation is to be changed, not the derivative.
        first = layers[0].site if layers else None
        yield self.finding(
            context,
            message=(
                "a second derivative is zero everywhere: the network consists of straight pieces"
                + (f" ({kinds})" if kinds else "")
            ),
            remedy="use a smooth activation, such as Tanh, SiLU or Softplus",
            site=next(iter(lines)) if first is None else first,
            related=tuple(
                context.related(line, "the derivative")
                for line in (lines if first is not None else ())
            ),
            severity="error" if any(one.has_graph for one in found) else None,
            modules=[one.path for one in layers],
            evidence={"elements": sum(one.elements for one in found), "nonzero": 0},
            count=len(lines),
        )


def _straight_layers(context: RuleContext) -> list[ModuleRecord]:
    """Return the layers with straight pieces that the forward has called, in its order."""
    modules = context.recording.modules
    called = dict.fromkeys(call.module for call in context.recording.calls)
    return [modules[one] for one in called if modules[one].class_name in _STRAIGHT]
