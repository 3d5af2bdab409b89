"""Learned weights of loss terms that also train what they weigh."""

import math
from collections.abc import Iterator

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import path_cuts
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS, SUMS, is_averaged_into_loss
from gradscope.rules.helpers.loss.signed_terms import scale_of
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats

PRODUCTS = frozenset({"DotBackward0", "MulBackward0"})

_DIGITS = 1e-5
"""Relative difference of two factors that are equal but for rounding."""
_SHIFTED = SUMS | SAME_NUMBERS | {"NegBackward0"}
"""Operations on one tensor after which it is still the same up to its sign and a constant."""


@dataclass(frozen=True, slots=True)
class LearnedWeight:
    """A number that learns, and two products of one tensor with it: in one it is detached."""

    parameter: int
    product: NodeRecord
    """The product that trains both factors."""
    constant: int | None
    """Line (a site) that makes it a constant in the other product."""
    weighed: tuple[int, ...]
    """Parameters behind the tensor that it weighs."""


def entangled_weights(context: RuleContext, wanted: frozenset[int]) -> Iterator[LearnedWeight]:
    """Yield the weights that have a loss of their own which trains what they weigh, too.

    The weight is detached where it weighs a tensor, so its own loss is to train the weight alone.
    A weight that was detached before this forward is known by its value.

    Args:
        context: A backward.
        wanted: Parameters that its steps update.
    """
    for weight, product, tensor in _weighed(context):
        behind = context.parameters_behind([tensor]) & wanted
        (parameter,) = context.parameters_behind([weight])
        # A weight that what it weighs depends on is a part of the network.
        if not behind or parameter in behind:
            continue
        cut = _cut(context, parameter, tensor)
        if cut is not None:
            yield LearnedWeight(parameter, product, cut.site, tuple(sorted(behind)))
            continue
        copy = _product_by_value(context, weight, tensor)
        if copy is not None:
            yield LearnedWeight(parameter, product, copy.site, tuple(sorted(behind)))


def _weighed(context: RuleContext) -> Iterator[tuple[int, NodeRecord, int]]:
    """Yield each weight that is made of one learned number, the product, and what it weighs."""
    for product in context.first.nodes:
        factors = _factors(context, product)
        for weight, tensor in (factors, factors[::-1]) if len(factors) == 2 else ():
            behind = context.parameters_behind([weight])
            if len(behind) == 1 and all(_is_number(context, one) for one in behind):
                yield weight, product, tensor


def _cut(context: RuleContext, parameter: int, tensor: int) -> PathCutRecord | None:
    """Return the call that detaches a weight in another product of a tensor."""
    for cut, parameters in path_cuts(context):
        if cut.kind == "detach" and tuple(parameters) == (parameter,):
            products = (context.recording.nodes[join] for join in cut.joins)
            if any(tensor in _factors(context, one) for one in products):
                return cut
    return None


def _product_by_value(context: RuleContext, weight: int, tensor: int) -> NodeRecord | None:
    """Return a product of a tensor with a constant that has the value of its learned weight."""
    stats = context.shared(forward_stats)
    value = stats.get(TensorRef(node=weight, slot=0))
    if value is None or value.numel != 1 or math.isclose(value.norm, 1, rel_tol=_DIGITS):
        return None  # a factor of 1 may be anything
    for product in context.first.nodes:
        if _factors(context, product) == [tensor]:
            factor = scale_of(context, product)
            if factor is not None and math.isclose(factor, value.norm, rel_tol=_DIGITS):
                return product
    return None


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
