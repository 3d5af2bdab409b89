"""Learned weights of loss terms that also train what they weigh."""

from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import path_cuts
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS, SUMS, is_averaged_into_loss

PRODUCTS = frozenset({"DotBackward0", "MulBackward0"})

_SHIFTED = SUMS | SAME_NUMBERS | {"NegBackward0"}
"""Operations on one tensor after which it is still the same up to its sign and a constant."""


@dataclass(frozen=True, slots=True)
class LearnedWeight:
    """A number that learns, and two products of one tensor with it: in one it is detached."""

    parameter: int
    product: NodeRecord
    """The product that trains both factors."""
    cut: PathCutRecord
    """The call that detaches the weight in the other product."""
    weighed: tuple[int, ...]
    """Parameters behind the tensor that it weighs."""


def entangled_weights(context: RuleContext, wanted: frozenset[int]) -> Iterator[LearnedWeight]:
    """Yield the weights that have a loss of their own which trains what they weigh, too.

    The weight is detached where it weighs a tensor, so its own loss is to train the weight alone.

    Args:
        context: A backward.
        wanted: Parameters that its steps update.
    """
    for cut, parameters in path_cuts(context):
        if cut.kind != "detach" or len(parameters) != 1 or not _is_number(context, parameters[0]):
            continue
        weighed = {
            one for join in cut.joins for one in _factors(context, context.recording.nodes[join])
        }
        for product in context.first.nodes if weighed else ():
            factors = _factors(context, product)
            for weight, tensor in (factors, factors[::-1]) if len(factors) == 2 else ():
                behind = context.parameters_behind([tensor]) & wanted
                is_own = context.parameters_behind([weight]) == set(parameters)
                if tensor in weighed and is_own and behind and not behind & set(parameters):
                    yield LearnedWeight(parameters[0], product, cut, tuple(sorted(behind)))


def _is_number(context: RuleContext, parameter: int) -> bool:
    return all(size == 1 for size in context.recording.parameters[parameter].shape.dims)


def _factors(context: RuleContext, product: NodeRecord) -> list[int]:
    """Return the factors with a gradient of a product in the loss, without added constants."""
    if product.operation not in PRODUCTS or not is_averaged_into_loss(context, product.index):
        return []
    return [_inner(context, ref.node) for ref in context.successors.get(product.index, ())]


def _inner(context: RuleContext, node: int) -> int:
    while True:
        record = context.recording.nodes[node]
        inputs = context.successors.get(node, ())
        if len(inputs) != 1 or not (record.kind == "view" or record.operation in _SHIFTED):
            return node
        node = inputs[0].node
