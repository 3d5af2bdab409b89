"""What a loss function is given: where views and layers hide it, and which dimension is which."""

from collections.abc import Iterator
from math import prod

from gradscope.recording.evidence.forward import ComparisonRecord, SoftmaxRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import origin_of_numbers, without_constant

LINEAR = frozenset({"AddmmBackward0", "LinearBackward0", "MmBackward0"})
"""Operations of a linear layer."""


_PROBABILITIES = frozenset({"SigmoidBackward0", "SoftmaxBackward0"})
_PICKS = frozenset({"GatherBackward0", "IndexBackward0"})
_TURNING = frozenset({"PermuteBackward0", "TransposeBackward0", "TransposeBackward1"})


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


def known_rows(context: RuleContext) -> Iterator[int]:
    """Yield the number of rows `n` of which the loss shows that each has its own classes."""
    yield from _rows_picked(context)
    yield from _rows_weighed(context)


def _rows_picked(context: RuleContext) -> Iterator[int]:
    """Yield the number of rows `n` where one of several probabilities `[n, classes]` is picked."""
    softmaxes = {one.node for one in context.recording.evidence_of(SoftmaxRecord)}
    for node in context.first.nodes:
        inputs = context.successors.get(node.index, ())
        if node.operation not in _PICKS or len(inputs) != 1:
            continue
        made = origin_of_numbers(context, inputs[0].node)
        if made is not None and made.operation == "LogBackward0":
            made = origin_of_numbers(context, context.successors[made.index][0].node)
            made = without_constant(context, made)
        dims, rest = (made.dims() or () if made is not None else ()), node.dims() or ()
        is_softmax = made is not None and made.index in softmaxes
        # An index of rows alone would keep all of their columns.
        if is_softmax and len(dims) == 2 and rest in ((dims[0],), (dims[0], 1)) and dims[0] > 1:
            yield dims[0]


def _rows_weighed(context: RuleContext) -> Iterator[int]:
    """Yield the number of rows `n` whose log-probabilities `[n, classes]` targets weigh and sum.

    A linear layer with a bias made the scores. Those of pairs are read along both dimensions.
    """
    for one in context.recording.evidence_of(SoftmaxRecord):
        node = context.recording.nodes[one.node]
        dims = node.dims() or ()
        if node.operation != "LogSoftmaxBackward0" or len(dims) != 2 or dims[0] in (1, dims[1]):
            continue
        inputs = context.successors.get(node.index, ())
        made = _unturned(context, inputs[0].node) if len(inputs) == 1 else None
        # A product without a bias may be one of two computed matrices.
        is_of_layer = made is not None and (
            made.operation in LINEAR - {"MmBackward0"}
            or (made.operation == "AddBackward0" and product_with_bias(context, made) is not None)
        )
        if is_of_layer and _is_summed(context, node, dims):
            yield dims[0]


def _is_summed(context: RuleContext, node: NodeRecord, dims: tuple[int, ...]) -> bool:
    """Return whether data multiply a matrix, and each row of the product is summed."""
    found, is_weighed = node, False
    while len(users := context.users.get(found.index, ())) == 1:
        found = context.recording.nodes[users[0]]
        if found.operation == "SumBackward1":
            return is_weighed and found.dims() in ((dims[0],), (dims[0], 1))
        is_product = found.operation == "MulBackward0" and (
            len(context.successors.get(found.index, ())) == 1
        )
        is_weighed |= is_product
        if found.dims() != dims or not (is_product or found.operation == "NegBackward0"):
            return False
    return False


def square_scores(context: RuleContext) -> Iterator[ComparisonRecord]:
    """Yield the cross-entropies of `[n, time, classes]` with as many classes as time steps.

    The loss takes the second dimension for the classes, and a linear layer made the last one.
    """
    for one in context.recording.evidence_of(ComparisonRecord):
        dims = one.left.dims
        is_square = len(dims) == 3 and dims[1] == dims[2] > 1 and one.right.dims == dims[:2]
        if one.operation == "cross_entropy" and is_square and one.left_tensor is not None:
            made = _unturned(context, one.left_tensor.node)
            if made is not None and made.operation == "AddBackward0":
                made = product_with_bias(context, made)
            if made is not None and made.operation in LINEAR:
                yield one


def _unturned(context: RuleContext, node: int) -> NodeRecord | None:
    """Return the operation behind views that keep the order of dimensions."""
    found = context.recording.nodes[node]
    while found.kind == "view" and found.operation not in _TURNING:
        inputs = context.successors.get(found.index, ())
        if len(inputs) != 1:
            return None
        found = context.recording.nodes[inputs[0].node]
    return None if found.operation in _TURNING else found
