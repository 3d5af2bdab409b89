"""How tensors go into the loss: its terms, and the operations on the way to it."""

import math
from collections.abc import Iterator, Set

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext

SAME_NUMBERS = frozenset(
    {
        "CloneBackward0",
        "ExpandBackward0",
        "GatherBackward0",
        "IndexBackward0",
        "IndexSelectBackward0",
        "MaskedSelectBackward0",
        "SelectBackward0",
        "SliceBackward0",
        "SplitBackward0",
        "SplitWithSizesBackward0",
        "ToCopyBackward0",
        "UnbindBackward0",
    }
)
"""Operations that pass on some or all numbers unchanged."""

ELEMENTWISE = frozenset(
    {
        "AbsBackward0",
        "AddBackward0",
        "AddcmulBackward0",
        "ClampBackward0",
        "ClampBackward1",
        "ClampMinBackward0",
        "ClampMaxBackward0",
        "DivBackward0",
        "DivBackward1",
        "ExpBackward0",
        "LogBackward0",
        "Log1PBackward0",
        "LogSigmoidBackward0",
        "CoshBackward0",
        "MaximumBackward0",
        "MaskedFillBackward0",
        "MaskedFillBackward1",
        "MinimumBackward0",
        "MulBackward0",
        "NegBackward0",
        "PowBackward0",
        "PowBackward1",
        "ReluBackward0",
        "RsubBackward0",
        "RsubBackward1",
        "SoftplusBackward0",
        "SqrtBackward0",
        "SubBackward0",
        "SubBackward1",
        "TanhBackward0",
        "WhereBackward0",
    }
)
"""Operations whose result has one element per element of their input."""

_LOSSES = frozenset(
    {
        "HuberLossBackward0",
        "MseLossBackward0",
        "SmoothL1LossBackward0",
    }
)

# torch numbers the overloads: 0 reduces all dimensions of a sum or a mean, 1 the given ones.
_REDUCTIONS = frozenset(
    {
        "LinalgVectorNormBackward0",
        "MeanBackward0",
        "MeanBackward1",
        "NanmeanBackward0",
        "NormBackward0",
        "NormBackward1",
        "StackBackward0",
        "SumBackward0",
        "SumBackward1",
    }
)

_BOUNDED_BY_DATA = ELEMENTWISE | _LOSSES | _REDUCTIONS | SAME_NUMBERS


# `outputs[t] = x` leaves this node. Its inputs are the tensor before the write, and what is
# written.
_WRITE = "CopySlices"
_SELECTING = frozenset({"IndexBackward0", "IndexSelectBackward0"})

_PASSING = SAME_NUMBERS | {
    "CatBackward0",
    "ClampBackward0",
    "ClampBackward1",
    "ClampMinBackward0",
    # Dropout on a GPU. On a CPU, it leaves a product with a mask.
    "NativeDropoutBackward0",
    "StackBackward0",
}
"""Operations whose result consists of numbers of their first input."""


def is_averaged_into_loss(context: RuleContext, node: int) -> bool:
    """Return whether only elementwise operations, sums and means lie between a node and the loss.

    So it is with the terms of a loss, and not with what a model computes inside.
    """
    # The node itself may average, as a loss function does.
    met_reduction = context.recording.nodes[node].operation in _REDUCTIONS | _LOSSES
    for user in users_up_to_loss(context, node):
        if user.kind != "view" and user.operation not in _BOUNDED_BY_DATA:
            return False
        met_reduction |= user.operation in _REDUCTIONS | _LOSSES
    return met_reduction


def is_likelihood(context: RuleContext, softmax: NodeRecord) -> bool:
    """Return whether the loss averages elements of a log-softmax."""
    users = [context.recording.nodes[one] for one in context.users.get(softmax.index, ())]
    # `cross_entropy` picks the classes and averages them in this node.
    if users and all(one.operation.startswith("NllLoss") for one in users):
        return True
    return is_averaged_into_loss(context, softmax.index)


def is_custom(node: NodeRecord) -> bool:
    """Return whether a custom function made a node, which may reverse its gradient."""
    # Nodes of torch end with a number, as `MulBackward0`; those of custom functions do not.
    return node.kind == "operation" and not node.operation[-1:].isdigit()


def users_up_to_loss(context: RuleContext, node: int) -> Iterator[NodeRecord]:
    """Yield every node through which the gradient of a node comes, nearest first."""
    waiting, seen = list(context.users.get(node, ())), set[int]()
    while waiting:
        user = waiting.pop(0)
        if user not in seen:
            seen.add(user)
            waiting += context.users.get(user, ())
            yield context.recording.nodes[user]


def nodes_behind(context: RuleContext, node: int) -> Iterator[NodeRecord]:
    """Yield a node and the nodes it was computed from, nearest first."""
    yield from context.behind([node])


def parameters_behind(context: RuleContext, node: int) -> frozenset[int]:
    """Return the parameters that a node was computed from."""
    return context.parameters_behind([node])


def reached_beside(context: RuleContext, nodes: Set[int]) -> frozenset[int]:
    """Return the parameters to which the loss leads on a way around some nodes."""
    found = (context.recording.nodes[one] for one in nodes_beside(context, nodes))
    return frozenset(one.parameter for one in found if one.parameter is not None)


def nodes_beside(context: RuleContext, nodes: Set[int]) -> set[int]:
    """Return the nodes to which the loss leads on a way around some of them."""
    waiting, seen = [node.index for node in context.first.nodes if node.depth == 0], set(nodes)
    while waiting:
        for ref in context.successors.get(waiting.pop(), ()):
            if ref.node not in seen:
                seen.add(ref.node)
                waiting.append(ref.node)
    return seen - nodes


SUMS = frozenset({"AddBackward0", "RsubBackward0", "RsubBackward1", "SubBackward0"})

_TERMS = SUMS | {"CatBackward0", "StackBackward0"}

_WEIGHTS = frozenset({"DivBackward0", "MulBackward0"})

_HANDED_ON = frozenset(
    {
        "CloneBackward0",
        "MeanBackward0",
        "MeanBackward1",
        "NegBackward0",
        "SumBackward0",
        "SumBackward1",
        "ToCopyBackward0",
    }
)


def sums_of_loss(context: RuleContext) -> dict[int, NodeRecord]:
    """Return the operations that add the terms of the loss, by node.

    Between them and the loss lie only weights, means, and further sums; all of them are numbers, or
    stacks of a few.
    """
    waiting = [node.index for node in context.first.nodes if node.depth == 0]
    found: dict[int, NodeRecord] = {}
    while waiting:
        node = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(node.index)
        if node.operation in _TERMS and _is_number(node):
            found[node.index] = node
            waiting += [one for one in inputs if one not in found]
        elif node.kind == "view" or node.operation in _HANDED_ON:
            waiting += [one for one in inputs if _is_stack(context.recording.nodes[one])]
        # A constant weight has no edge; a learned one makes the term a product of two.
        elif node.operation in _WEIGHTS and len(inputs) == 1:
            waiting += inputs
    return found


def sums_of_examples(context: RuleContext) -> dict[int, NodeRecord]:
    """Return the additions of one number per example, whose mean or sum is the loss, by node.

    Between them and the loss lie only weights, signs, further sums and the mean.
    """
    waiting = [node.index for node in context.first.nodes if node.depth == 0]
    found: dict[int, NodeRecord] = {}
    seen = set(waiting)
    while waiting:
        node = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(node.index)
        is_weighted = node.operation in _WEIGHTS and len(inputs) == 1
        if node.operation == "AddBackward0" and _is_of_examples(node):
            found[node.index] = node
        elif not (node.operation in SUMS | _HANDED_ON or node.kind == "view" or is_weighted):
            continue
        fresh = [one for one in inputs if one not in seen]
        seen.update(fresh)
        waiting += [one for one in fresh if _is_small(context.recording.nodes[one])]
    return found


def _is_small(node: NodeRecord) -> bool:
    return _elements(node) == 1 or _is_of_examples(node)


def _is_of_examples(node: NodeRecord) -> bool:
    """Return whether a tensor has one number per example: one dimension above 1."""
    return sum(size > 1 for size in node.dims() or ()) == 1


def _is_number(node: NodeRecord) -> bool:
    return _elements(node) == 1 or node.operation in ("CatBackward0", "StackBackward0")


def _is_stack(node: NodeRecord) -> bool:
    """Return whether a tensor is a number, or a stack of numbers."""
    is_stack = node.operation in ("CatBackward0", "StackBackward0")
    # A longer stack holds examples rather than terms.
    return _elements(node) == 1 or (is_stack and _elements(node) <= 64)


def _elements(node: NodeRecord) -> int:
    dims = node.dims()
    return 0 if dims is None else math.prod(dims)


def origin_of_numbers(context: RuleContext, node: int) -> NodeRecord | None:
    """Return the operation that computed a tensor's numbers, before views, casts and clamping."""
    found = context.recording.nodes[node]
    while True:
        inputs = context.inputs(found.index)
        if found.operation == _WRITE:
            written = _written(context, found, inputs)
            if written is None:
                return found
            inputs = [written]
        elif found.kind != "view" and found.operation not in _PASSING:
            return found
        if not inputs:
            return None
        found = context.recording.nodes[inputs[0]]


def _written(context: RuleContext, write: NodeRecord, inputs: list[int]) -> int | None:
    """Return what was written into a part of a tensor that consists of such parts alone.

    None for any other write: `outputs[t] = output` has what was written as its last input, and
    nothing or a write before it as its first.
    """
    nodes = context.recording.nodes
    # An only input of the size of the whole is the tensor before: what was written has no gradient.
    if not inputs or nodes[inputs[-1]].outputs[:1] == write.outputs[:1]:
        return None
    is_filled = len(inputs) == 1 or (len(inputs) == 2 and nodes[inputs[0]].operation == _WRITE)
    return inputs[-1] if is_filled else None


def without_constant(context: RuleContext, node: NodeRecord | None) -> NodeRecord | None:
    """Return what a constant is added to, such as an epsilon before a logarithm."""
    while node is not None and node.operation == "AddBackward0":
        inputs = context.successors.get(node.index, ())
        if len(inputs) != 1:
            return node
        node = origin_of_numbers(context, inputs[0].node)
    return node


def rows_selected_from(
    context: RuleContext, comparison: ComparisonRecord
) -> tuple[int, tuple[int, ...]]:
    """Return the tensor that a loss compares, and its dimensions, before rows were selected of it.

    So the nodes of a graph are, and the tokens that count.
    """
    assert comparison.left_tensor is not None
    node, dims = comparison.left_tensor.node, comparison.left.dims
    while context.recording.nodes[node].operation in _SELECTING:
        inputs = context.successors.get(node, ())
        shape = context.recording.nodes[inputs[0].node].outputs[inputs[0].slot] if inputs else None
        if shape is None or shape.dims[1:] != dims[1:]:
            break
        node, dims = inputs[0].node, shape.dims
    return node, dims


@dataclass(frozen=True, slots=True)
class ReducedTerm:
    """A term of the loss that is a sum or a mean over everything."""

    node: NodeRecord
    """The reduction."""
    is_mean: bool
    rows: int
    """Size of the first dimension of what is reduced."""
    factor: float
    """Magnitude of the derivative of the loss with respect to the term."""


def reduced_terms(context: RuleContext) -> Iterator[ReducedTerm]:
    """Yield the terms that are added up in the loss and end in a sum or a mean."""
    losses = {
        one.result.node: one
        for one in context.recording.evidence_of(ComparisonRecord)
        if one.reduction in ("mean", "sum")
    }
    sums = sums_of_loss(context)
    waiting = [ref.node for one in sums for ref in context.successors.get(one, ())]
    while waiting:
        node = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(node.index)
        loss = losses.get(node.index)
        if loss is not None and loss.left.dims:
            yield from _reduced(context, node, loss.left.dims[0], is_mean=loss.reduction == "mean")
        elif node.operation in ("SumBackward0", "MeanBackward0") and len(inputs) == 1:
            shape = context.recording.nodes[inputs[0]].outputs[0]
            if shape is not None and shape.dims:
                is_mean = node.operation == "MeanBackward0"
                yield from _reduced(context, node, shape.dims[0], is_mean=is_mean)
        elif len(inputs) == 1 and node.operation in _WEIGHTS | {"NegBackward0"}:
            waiting += inputs


def _reduced(
    context: RuleContext, node: NodeRecord, rows: int, *, is_mean: bool
) -> Iterator[ReducedTerm]:
    stat = context.tensor_stat(node.index, 0)
    if stat is not None and stat.gradient is not None:
        # The gradient of a single number has one element: its norm is the factor.
        yield ReducedTerm(node, is_mean, rows, stat.gradient.norm)


def is_divergence(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a sum was computed elementwise from an exponential and a square of layers.

    A likelihood has a quotient of two results besides, and a penalty the parameters themselves.
    """
    waiting = context.inputs(node.index)
    seen: set[int] = set()
    has_exponential = has_square = False
    while waiting:
        one = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(one.index)
        if one.index in seen:
            continue
        seen.add(one.index)
        is_product = one.operation in _WEIGHTS and len(inputs) == 2
        if one.operation == "AccumulateGrad" or (is_product and inputs[0] != inputs[1]):
            return False
        has_exponential |= one.operation == "ExpBackward0"
        has_square |= one.operation == "PowBackward0" or is_product
        waiting += inputs if one.operation in ELEMENTWISE else ()
    return has_exponential and has_square
