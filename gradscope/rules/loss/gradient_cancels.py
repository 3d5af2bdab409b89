"""GS713: differences and ratios whose gradient cancels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Lasting, Rule

_Kind = Literal["difference", "ratio", "added again"]

_TOLD: dict[_Kind, str] = {
    "difference": "a tensor is subtracted from itself: the difference is always 0",
    "ratio": "a tensor is divided by itself: the ratio is always 1",
    "added again": "a tensor is subtracted and added again: its gradient cancels",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCancels(Rule):
    """A gradient cancels: a tensor is subtracted from itself, or divided by itself.

    What it finds:
        The difference or the ratio of a tensor and itself, such as the ratio of a new and an old
        policy whose logarithms are one tensor; and `z + (q - z)`, a straight-through estimator
        without its `detach`.

    Why it matters:
        The numbers look right, and nothing fails. But the derivative is exactly zero: the policy is
        not trained, and the encoder below a quantiser gets nothing from the decoder.

    How it is measured:
        The two operands of a subtraction or a division are the same output of the same operation,
        or a subtracted tensor is the other term of the sum that its difference enters. Parameters
        that require grad were used for it. In the second case some of them were not used for the
        other operand. Nothing is measured in numbers, so there is no threshold.

    How to fix it:
        Detach what is meant as a constant: `old = new.detach()`, `z + (q - z).detach()`.

    When it may be wrong:
        If a tensor of zeros or ones with a gradient is wanted.

    Source:
        tensorforce issue 312: the ratio of probabilities is always 1. van den Oord et al. 2017,
        "Neural Discrete Representation Learning" (arXiv 1711.00937): the straight-through gradient.
    """

    code: ClassVar[str] = "GS713"
    name: ClassVar[str] = "gradient-cancels"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if context.has_backward else "no backward was recorded"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every operation whose gradient cancels."""
        for node in context.recording.nodes:
            kind, parameters = _cancelled(context, node)
            if kind is not None and parameters:
                yield self._finding(context, node, kind, parameters)

    def _finding(
        self, context: RuleContext, node: NodeRecord, kind: _Kind, parameters: frozenset[int]
    ) -> Finding:
        return self.finding(
            context,
            message=f"{_TOLD[kind]}, and {counted(len(parameters), 'parameter')} "
            f"{'gets' if len(parameters) == 1 else 'get'} no gradient through it",
            remedy="detach the difference, as in `z + (q - z).detach()`"
            if kind == "added again"
            else "detach the one that is meant as a constant, as in `old = new.detach()`",
            site=node.site,
            parameters=sorted(parameters),
            evidence={"operation": node.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )


def _cancelled(context: RuleContext, node: NodeRecord) -> tuple[_Kind | None, frozenset[int]]:
    """Return how a gradient cancels at an operation, and the parameters that lose it."""
    operands = context.successors.get(node.index, ())
    if len(operands) != 2:
        return None, frozenset()
    first, second = operands
    if first == second and node.operation in ("SubBackward0", "DivBackward0"):
        kind: _Kind = "difference" if node.operation == "SubBackward0" else "ratio"
        return kind, context.parameters_behind([first.node])
    if node.operation == "AddBackward0":
        for term, other in ((first, second), (second, first)):
            parameters = _added_again(context, term, context.recording.nodes[other.node])
            if parameters:
                return "added again", parameters
    return None, frozenset()


def _added_again(context: RuleContext, term: TensorRef, other: NodeRecord) -> frozenset[int]:
    """Return the parameters that a term loses to the difference that it is added to."""
    operands = context.successors.get(other.index, ())
    if other.operation != "SubBackward0" or len(operands) != 2 or operands[1] != term:
        return frozenset()
    return context.parameters_behind([term.node]) - context.parameters_behind([operands[0].node])
