"""GS713: differences and ratios whose gradient cancels."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.forward import OwnAnchorRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Lasting, Rule

_Kind = Literal["difference", "ratio", "added again", "multiplied again", "own memory"]
_OF_A_NUMBER = frozenset({"AddBackward0", "ClampBackward1", "ClampMinBackward0"})
"""Operations that keep a divisor from zero: an epsilon is added, or it is clamped."""

_TOLD: dict[_Kind, str] = {
    "difference": "a tensor is subtracted from itself: the difference is always 0",
    "ratio": "a tensor is divided by itself: the ratio is always 1",
    "added again": "a tensor is subtracted and added again: its gradient cancels",
    "multiplied again": "a tensor is multiplied by a quotient that divides by it: its gradient "
    "cancels",
    "own memory": "a parameter is compared with a constant that shares its memory: the difference "
    "is always 0",
}

_OLD = "detach the one that is meant as a constant, as in `old = new.detach()`"
_REMEDIES: dict[_Kind, str] = {
    "added again": "detach the difference, as in `z + (q - z).detach()`",
    "multiplied again": "detach the quotient, as in `(a / b).detach() * b`",
    "own memory": "keep a copy: `p.detach().clone()`, or a deepcopy of the state",
}

_EVEN = ("AbsBackward", "HuberLoss", "L1Loss", "MseLoss", "PowBackward", "SmoothL1Loss")
"""Starts of the names of operations whose derivative is 0 at 0."""
_NORMS = ("LinalgVectorNorm", "NormBackward")
_JOINING = ("CatBackward", "CloneBackward", "StackBackward")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCancels(Rule):
    """A gradient cancels: a tensor is subtracted from itself, or divided by itself.

    What it finds:
        The difference or the ratio of a tensor and itself, such as the ratio of a new and an old
        policy whose logarithms are one tensor; `z + (q - z)`, a straight-through estimator without
        its `detach`; and `(a / b) * b`, a term of the loss whose adaptive weight divides by the
        term and is not detached. And a penalty such as `(p - old).pow(2)`, as of elastic weight
        consolidation or FedProx, whose `old` is `p.data` or `p.detach()` without a `clone()`.

    Why it matters:
        The numbers look right, and nothing fails. But the derivative is exactly zero: the policy is
        not trained, the encoder below a quantiser gets nothing from the decoder, a term of the
        loss that is weighted by its own inverse trains nothing, and the weights may go where they
        like.

    How it is measured:
        The two operands of a subtraction or a division are the same output of the same operation,
        or a subtracted tensor is the other term of the sum that its difference enters, or a divisor
        is the other factor of the product that its quotient enters, be it clamped or an epsilon
        added before. Parameters that require grad were used for it. In the second case some of them
        were not used for the other operand. Or a parameter is compared with a constant of the same
        memory, and of the difference only a square, a magnitude or a norm is used. Nothing is
        measured in numbers, so there is no threshold.

    How to fix it:
        Detach what is meant as a constant: `old = new.detach()`, `z + (q - z).detach()`,
        `(a / b).detach() * b`.

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
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose gradient cancels."""
        found: dict[tuple[int | None, _Kind], tuple[NodeRecord, frozenset[int]]] = {}
        for node, kind, parameters in _all_cancelled(context):
            first, known = found.get((node.site, kind), (node, frozenset()))
            found[node.site, kind] = first, known | parameters
        for (_, kind), (node, parameters) in found.items():
            yield self._finding(context, node, kind, parameters)

    def _finding(
        self, context: RuleContext, node: NodeRecord, kind: _Kind, parameters: frozenset[int]
    ) -> Finding:
        return self.finding(
            context,
            message=f"{_TOLD[kind]}, and {counted(len(parameters), 'parameter')} "
            f"{'gets' if len(parameters) == 1 else 'get'} no gradient through it",
            remedy=_REMEDIES.get(kind, _OLD),
            site=node.site,
            parameters=sorted(parameters),
            evidence={"operation": node.operation, "parameters_behind": len(parameters)},
            count=len(parameters),
        )


def _all_cancelled(
    context: RuleContext,
) -> Iterator[tuple[NodeRecord, _Kind, frozenset[int]]]:
    for node in context.recording.nodes:
        kind, parameters = _cancelled(context, node)
        if kind is not None and parameters:
            yield node, kind, parameters
    for record in context.recording.evidence_of(OwnAnchorRecord):
        node = context.recording.nodes[record.node]
        if _is_even(context, node):
            yield node, "own memory", context.parameters_behind([node.index])


def _is_even(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether only squares, magnitudes and norms of a difference are used.

    A difference of 0 alone may give another gradient its way, as a straight-through estimator.
    """
    if node.operation.startswith(_EVEN + _NORMS):
        return True
    users = [context.recording.nodes[one] for one in context.users.get(node.index, ())]
    return bool(users) and all(
        one.operation.startswith(_EVEN + _NORMS)
        or _squares(context, one, node)
        or ((one.kind == "view" or one.operation.startswith(_JOINING)) and _is_even(context, one))
        for one in users
    )


def _squares(context: RuleContext, product: NodeRecord, factor: NodeRecord) -> bool:
    operands = [ref.node for ref in context.successors.get(product.index, ())]
    is_product = product.operation.startswith(("DotBackward", "MulBackward"))
    return is_product and operands == [factor.index] * 2


def _cancelled(context: RuleContext, node: NodeRecord) -> tuple[_Kind | None, frozenset[int]]:
    """Return how a gradient cancels at an operation, and the parameters that lose it."""
    # What has no gradient has no edge, and nothing of it can cancel.
    operands = context.successors.get(node.index, ())
    if len(operands) != 2:
        return None, frozenset()
    first, second = operands
    if first == second and node.operation in ("SubBackward0", "DivBackward0"):
        kind: _Kind = "difference" if node.operation == "SubBackward0" else "ratio"
        return kind, context.parameters_behind([first.node])
    # Sums and products commute: the difference or the quotient may be either operand.
    for one, other in ((first, second), (second, first)):
        kind_again, parameters = _undone(context, node, one, context.recording.nodes[other.node])
        if kind_again is not None:
            return kind_again, parameters
    return None, frozenset()


def _undone(
    context: RuleContext, node: NodeRecord, one: TensorRef, other: NodeRecord
) -> tuple[_Kind | None, frozenset[int]]:
    """Return how a sum or a product undoes what its other operand did to one of them."""
    if node.operation == "AddBackward0":
        parameters = _added_again(context, one, other)
        return ("added again", parameters) if parameters else (None, parameters)
    if node.operation == "MulBackward0" and _divides_by(context, other, one):
        return "multiplied again", context.parameters_behind([one.node])
    return None, frozenset()


def _added_again(context: RuleContext, term: TensorRef, other: NodeRecord) -> frozenset[int]:
    """Return the parameters that a term loses to the difference that it is added to."""
    operands = context.successors.get(other.index, ())
    if other.operation != "SubBackward0" or len(operands) != 2 or operands[1] != term:
        return frozenset()
    # What made the other operand keeps its gradient, as in a residual `x + (f(x) - x)`.
    return context.parameters_behind([term.node]) - context.parameters_behind([operands[0].node])


def _divides_by(context: RuleContext, quotient: NodeRecord, factor: TensorRef) -> bool:
    """Return whether a quotient divides by a factor, or by it after a number kept it from zero."""
    operands = context.successors.get(quotient.index, ())
    if quotient.operation != "DivBackward0" or len(operands) != 2:
        return False
    # `a / (a + b) * b` has another derivative: only constants may be added, which have no edge.
    divisor = context.recording.nodes[operands[1].node]
    return operands[1] == factor or (
        divisor.operation in _OF_A_NUMBER
        and tuple(context.successors.get(divisor.index, ())) == (factor,)
    )
