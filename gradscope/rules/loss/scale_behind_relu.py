"""GS731: a divisor or an argument of a logarithm that a ReLU makes zero."""

from collections.abc import Iterator
from math import nan
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_FLOORS = ("Add", "ClampMin", "ClampBackward1", "Clone", "Mul", "Sqrt", "ToCopy")
"""Prefixes of operations between the ReLU and the logarithm that keep the smallest smallest."""
_LIMITED = ("ClampMin", "ClampBackward1", "Clone")
"""Those that hold values at a limit; a clone may be limited in place, as `GaussianNLLLoss` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleBehindRelu(Rule):
    """The loss divides by what a ReLU returns, or takes its logarithm, and some of it is zero.

    What it finds:
        A variance, a standard deviation or a rate that the model makes positive by `relu`, as for
        `GaussianNLLLoss`, and that is zero for some examples.

    Why it matters:
        For these examples only the epsilon is left, so their loss is huge and drowns all others.
        And the ReLU has no gradient there: nothing moves them away from zero.

    How it is measured:
        A division or a logarithm gets the output of a ReLU, with at most a constant added, a lower
        limit or a root in between, and its smallest value is below `highest_floor`. `least_share`
        of the ReLU's outputs or more are zero.

    How to fix it:
        Use `softplus`, or predict the logarithm of the scale: both are positive and have a gradient
        everywhere.

    When it may be wrong:
        If the zeros are masked out of the loss afterwards.

    Source:
        torch documentation, `torch.nn.GaussianNLLLoss`: `eps` clamps the variance for stability.
        Nix and Weigend 1994, "Estimating the mean and variance of the target probability
        distribution": an exponential makes the variance positive.
    """

    code: ClassVar[str] = "GS731"
    name: ClassVar[str] = "scale-behind-relu"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("forward"),)

    least_share: float = 0.01
    """Share of zeros among the outputs of the ReLU, 0 to 1. Chosen: one example of a hundred."""
    highest_floor: float = 0.01
    """Smallest value of the divisor, or of the logarithm's argument. Chosen: epsilons are 1e-3 or
    less, and `log(1 + relu(x))` starts at 1.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every ReLU whose zeros become scales."""
        told = set[int]()
        for user, argument in _scales(context):
            relu = _relu_before(context, argument)
            stat = None if relu is None else _stat(context, relu)
            if relu is None or stat is None or relu.index in told or not stat.numel:
                continue
            lowest = _lowest(context, argument)
            # A comparison that NaN fails passes over what is unknown.
            if not lowest < self.highest_floor:
                continue
            zeros = stat.zeros / stat.numel
            context.measured(self.code, "share", zeros, self.least_share, site=relu.site)
            if zeros < self.least_share:
                continue
            told.add(relu.index)
            takes = "divides by" if user.operation.startswith("Div") else "takes the logarithm of"
            yield self.finding(
                context,
                message=(
                    f"{zeros:.0%} of what this ReLU returns is zero, and the loss {takes} it: "
                    "only an epsilon is left there, and no gradient"
                ),
                remedy="use softplus in place of relu, or predict the logarithm of the scale",
                site=relu.site,
                related=(context.related(user.site, f"the loss {takes} it here"),),
                evidence={
                    "share": zeros,
                    "limit": self.least_share,
                    "zeros": stat.zeros,
                    "lowest": lowest,
                },
                count=stat.zeros,
            )


def _scales(context: RuleContext) -> Iterator[tuple[NodeRecord, NodeRecord]]:
    """Yield logarithms and divisions, each with its argument or divisor."""
    nodes = context.recording.nodes
    for node in nodes:
        inputs = context.successors.get(node.index, ())
        if node.operation.startswith("LogBackward") and len(inputs) == 1:
            yield node, nodes[inputs[0].node]
        # With one input, the edge does not tell whether it is the divisor.
        elif node.operation.startswith("Div") and len(inputs) == 2:
            yield node, nodes[inputs[1].node]


def _relu_before(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return the ReLU that makes an argument, behind constants and limits."""
    while not node.operation.startswith("Relu"):
        inputs = context.successors.get(node.index, ())
        is_passed = node.kind == "view" or node.operation.startswith(_FLOORS)
        if not is_passed or len(inputs) != 1:
            return None
        node = context.recording.nodes[inputs[0].node]
    return node


def _lowest(context: RuleContext, argument: NodeRecord) -> float:
    """Return the smallest value of what is behind a ReLU with zeros.

    It is a small limit if it was not measured. It is NaN behind an unknown constant, and for 0
    itself, whose logarithm is infinite: other rules name that.
    """
    stat = _stat(context, argument)
    if stat is not None:
        return stat.minimum if stat.minimum > 0 else nan
    return 0.0 if argument.operation.startswith(_LIMITED) else nan


def _stat(context: RuleContext, node: NodeRecord) -> ForwardStat | None:
    return context.shared(forward_stats).get(TensorRef(node=node.index, slot=0))
