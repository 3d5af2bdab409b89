"""What a loss function is given, where views and layers hide it."""

from math import prod

from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import origin_of_numbers

LINEAR = frozenset({"AddmmBackward0", "LinearBackward0", "MmBackward0"})
"""Operations of a linear layer."""


_PROBABILITIES = frozenset({"SigmoidBackward0", "SoftmaxBackward0"})


def averaged_probabilities(context: RuleContext, node: int) -> int:
    """Return the normalisation whose results a mean, or a sum with weights, is taken of.

    A mean of probabilities is a probability, over frames or patches as well as over models. Weights
    are the results of a softmax along a dimension as long as the one that is summed up. Any other
    node is returned as it is.
    """
    total = origin_of_numbers(context, node)
    parts = [] if total is None else _origins(context, total)
    if total is None or len(parts) != 1:
        return node
    if total.operation.startswith("SumBackward") and parts[0].operation == "MulBackward0":
        length = prod(parts[0].dims() or ()) // max(prod(total.dims() or ()), 1)
        parts = _weighted(context, _origins(context, parts[0]), length)
    elif not total.operation.startswith("MeanBackward"):
        return node
    return next((one.index for one in parts if one.operation in _PROBABILITIES), node)


def _weighted(context: RuleContext, factors: list[NodeRecord], length: int) -> list[NodeRecord]:
    """Return what a softmax along a dimension of a length weighs, nothing without such a one."""
    dimensions = {one.node: one.dimension for one in context.recording.evidence_of(SoftmaxRecord)}
    weights = [
        one
        for one in factors
        if one.index in dimensions
        and (one.dims() or ())[dimensions[one.index] :][:1] == (length,)
        and length > 1
    ]
    return [one for one in factors if one not in weights[:1]] if weights else []


def _origins(context: RuleContext, node: NodeRecord) -> list[NodeRecord]:
    inputs = context.successors.get(node.index, ())
    found = [origin_of_numbers(context, one.node) for one in inputs]
    return [one for one in found if one is not None]


def product_with_bias(context: RuleContext, total: NodeRecord) -> NodeRecord | None:
    """Return the product of a linear layer that adds its bias afterwards, None for other sums."""
    operands = context.successors.get(total.index, ())
    nodes = [context.recording.nodes[one.node] for one in operands]
    # Where the input is not contiguous, torch multiplies first and adds the bias apart.
    if len(nodes) != 2 or nodes[1].kind != "parameter" or nodes[0].module_call is None:
        return None
    product = origin_of_numbers(context, nodes[0].index)
    is_linear = product is not None and product.operation in LINEAR
    is_one_layer = product is not None and product.module_call == total.module_call
    return product if is_linear and is_one_layer else None
