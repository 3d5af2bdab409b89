"""What makes a prediction: operations whose result nothing but the loss makes use of."""

import math
from collections.abc import Iterator

from gradscope.recording.evidence.forward import LoneNormalisationRecord, SoftmaxRecord
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext

_REDUCING = ("Add", "Div", "Mean", "Mul", "Neg", "Rsub", "Sub", "Sum")
"""Prefixes of operations that reduce terms to a loss, and scale it."""
_ELEMENTWISE = ("Clone", "Expand", "Mul", "Permute", "Squeeze", "ToCopy", "Transpose", "Unsqueeze")
_TOTALS = ("Linalg", "Norm", "Sum")
_LAYERS = ("Addmm", "Linear", "Mm")
_SAME_FEATURES = frozenset(
    {"ReshapeAliasBackward0", "ToCopyBackward0", "UnsafeViewBackward0", "ViewBackward0"}
)
"""Casts, and views that a linear layer makes of its output, for the dimensions of a batch."""


def is_over_one_element(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether an operation is a softmax that has nothing to choose from."""
    dimension = _dimension(context, node)
    return dimension is not None and (node.dims() or ())[dimension:][:1] == (1,)


def normalises_one_feature(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a softmax is over the outputs of a layer that has one alone.

    A sequence of one element, or a batch of one, is another matter: the next may be longer.
    """
    dimension, rank, below = _dimension(context, node), _rank(node), _input(context, node)
    # After a dimension was removed, the last one may not be the layer's.
    while below is not None and below.operation in _SAME_FEATURES and _rank(below) <= rank:
        rank, below = _rank(below), _input(context, below)
    if below is None or _rank(below) > rank or not _takes_parameter(context, below):
        return False
    # A convolution has its channels in the second dimension, a linear layer its features in the
    # last.
    if below.operation.startswith("Convolution"):
        return dimension == 1
    return below.operation.startswith(_LAYERS) and dimension == _rank(node) - 1


def normalises_alone(context: RuleContext) -> frozenset[int]:
    """Return the nodes of normalisations that subtract each element from itself."""
    records = context.recording.evidence_of(LoneNormalisationRecord)
    return frozenset(record.node for record in records)


def weighs_positions(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a softmax makes weights of a sum over another dimension than its own.

    These are the weights of an attention, `(weight * states).sum(1)`, but not those of experts.
    """
    # The first dimension is that of the examples, and one of a single element sums up nothing.
    sizes = {size for size in (node.dims() or ())[1:] if size > 1}
    waiting, seen = [node.index], {node.index}
    while waiting:
        for position in set(context.users.get(waiting.pop(), ())) - seen:
            seen.add(position)
            user = context.recording.nodes[position]
            if sizes & set(_summed(context, user)):
                return True
            # Beyond other operations the elements are no weights any more.
            if user.kind == "view" or user.operation.startswith(_ELEMENTWISE):
                waiting.append(position)
    return False


def _summed(context: RuleContext, node: NodeRecord) -> tuple[int, ...]:
    """Return the size of the dimension that a sum or a product of matrices reduces."""
    nodes, shape = context.recording.nodes, node.outputs[0]
    operands = [nodes[ref.node].outputs[ref.slot] for ref in context.successors[node.index]]
    if shape is None or not operands or operands[0] is None:
        return ()
    if node.operation.startswith(("Bmm", "Mm")):
        # Of two operands the first one's last dimension; of one it is not known which it is.
        return operands[0].dims[-1:] if len(operands) == 2 else operands[0].dims[-2:]
    if not node.operation.startswith(("Mean", "Sum")) or not shape.dims:
        return ()
    # The node does not tell which dimension it reduces; the quotient of the sizes is the length of
    # it.
    return (math.prod(operands[0].dims) // math.prod(shape.dims),)


def _takes_parameter(context: RuleContext, node: NodeRecord) -> bool:
    inputs = [context.recording.nodes[ref.node] for ref in context.successors.get(node.index, ())]
    while inputs:
        one = inputs.pop()
        if one.parameter is not None:
            return True
        below = (
            _input(context, one) if one.kind == "view" or one.operation in _SAME_FEATURES else None
        )
        inputs += [] if below is None else [below]
    return False


def _rank(node: NodeRecord) -> int:
    return len(node.dims() or ())


def _dimension(context: RuleContext, node: NodeRecord) -> int | None:
    records = context.recording.evidence_of(SoftmaxRecord)
    return next((record.dimension for record in records if record.node == node.index), None)


def _input(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return the node that made an operation's only input, None if there are several."""
    positions = {ref.node for ref in context.successors.get(node.index, ())}
    return context.recording.nodes[positions.pop()] if len(positions) == 1 else None


def feeds_loss(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether an operation's result meets nothing else that is computed, up to the loss.

    Terms of the loss, which are numbers, may join it there.
    """
    nodes, above = context.recording.nodes, _above(context, node)
    inputs = {ref.node for position in above for ref in context.successors.get(position, ())}
    return all(
        # Another tensor that joins it, or a parameter, computes on with the result, which is then
        # no output yet.
        nodes[position].kind == "operation" and _is_number(nodes[position])
        for position in inputs - above - {node.index}
    )


def is_margin(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether an operation's result is a term of the loss itself, as of a hinge."""
    return all(
        context.recording.nodes[position].kind == "view"
        or context.recording.nodes[position].operation.startswith(_REDUCING)
        for position in _above(context, node)
    )


def _above(context: RuleContext, node: NodeRecord) -> frozenset[int]:
    """Return the operations between one and the loss, the loss included."""
    waiting, seen = [node.index], set[int]()
    while waiting:
        fresh = set(context.users.get(waiting.pop(), ())) - seen
        seen |= fresh
        waiting += fresh
    return frozenset(seen)


def _is_number(node: NodeRecord) -> bool:
    return all(shape is not None and not shape.dims for shape in node.outputs)


def constant_ratios(context: RuleContext) -> Iterator[NodeRecord]:
    """Yield the divisions of a tensor by its own sum or norm over a dimension of one element.

    The result is 1, or -1, whatever the tensor: its gradient is zero up to rounding. So is that of
    a normalisation whose groups have one element.
    """
    yield from (context.recording.nodes[index] for index in sorted(normalises_alone(context)))
    for node in context.first.nodes:
        operands = context.successors.get(node.index, ())
        if node.operation != "DivBackward0" or len(operands) != 2:
            continue
        whole, total = operands
        # Between sum and division there are often a `keepdim`, an epsilon or a clamp, which leave
        # the ratio constant.
        while _size(context, total) and _is_passed(context.recording.nodes[total.node]):
            below = context.successors.get(total.node, ())
            if len(below) != 1:
                break
            total = below[0]
        made_of = context.successors.get(total.node, ())
        is_sum = context.recording.nodes[total.node].operation.startswith(_TOTALS)
        if is_sum and list(made_of) == [whole] and _size(context, whole) == _size(context, total):
            yield node


def _is_passed(node: NodeRecord) -> bool:
    return node.kind == "view" or node.operation.startswith(("Add", "Clamp", "Expand"))


def _size(context: RuleContext, tensor: TensorRef) -> int:
    dims = context.recording.nodes[tensor.node].dims(tensor.slot)
    return 0 if dims is None else math.prod(dims)
