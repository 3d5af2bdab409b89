"""Attention by hand: scores, their softmax, and the product of the weights with the values."""

from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS

# A matrix product of more than two dimensions leaves this node behind views.
_PRODUCT = "BmmBackward0"
_PRODUCTS = frozenset({_PRODUCT, "MmBackward0"})
_TURNING = frozenset({"PermuteBackward0", "TransposeBackward0", "TBackward0"})
_HANDING_ON = SAME_NUMBERS | {"NativeDropoutBackward0"}
_SCORING = frozenset(
    {
        "AddBackward0",
        "ClampBackward1",
        "DivBackward0",
        "MaskedFillBackward0",
        "MaskedFillBackward1",
        "MulBackward0",
        "SubBackward0",
        "TanhBackward0",
        "WhereBackward0",
    }
)
"""Operations between a product and the softmax of its scores."""
_PAIRING = frozenset({"DivBackward0", "LeakyReluBackward0", "MulBackward0", "TanhBackward0"})
"""Operations between a sum of pairs and the softmax."""


def way_to_values(
    context: RuleContext, node: NodeRecord, *, through: frozenset[str] = frozenset()
) -> tuple[list[NodeRecord], NodeRecord] | None:
    """Return the product that sums over the last dimension of some weights, and what lies before.

    Operations of `through` may lie between if they have one input, as views, casts and dropout may.
    """
    nodes = context.recording.nodes
    last, found = (node.dims() or (0,))[-1], node
    between = list[NodeRecord]()
    while True:
        users = [nodes[one] for one in context.users.get(found.index, ())]
        products = [one for one in users if one.operation in _PRODUCTS]
        for one in products:
            operands = [ref.node for ref in context.successors.get(one.index, ())]
            dims = found.dims()
            # `weights @ values` sums over the last dimension of its left factor.
            if operands and operands[0] == found.index and dims is not None:
                is_known = len(operands) == 2 and not _has_weight(context, one)
                return (between, one) if dims[-1] == last and is_known else None
        if len(users) != 1 or products:
            return None
        user = users[0]
        # Dropout multiplies by numbers without a gradient.
        is_scaled = user.operation in through | {"MulBackward0"}
        is_scaled = is_scaled and len(context.successors.get(user.index, ())) == 1
        is_plain = user.kind == "view" or user.operation in _HANDING_ON or is_scaled
        if not is_plain or user.operation in _TURNING:
            return None
        between.append(user)
        found = user


def is_of_scores(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a softmax is one of scores, which a product of computed matrices has made."""
    nodes = context.recording.nodes
    waiting, seen = [ref.node for ref in context.successors.get(node.index, ())], set[int]()
    while waiting:
        one = nodes[waiting.pop()]
        if one.operation in _PRODUCTS and not _has_weight(context, one):
            return True
        is_scoring = one.kind == "view" or one.operation in _HANDING_ON | _SCORING
        if one.index in seen or not is_scoring:
            continue
        seen.add(one.index)
        waiting += [ref.node for ref in context.successors.get(one.index, ())]
    return False


def is_sum_of_pairs(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether the scores of a softmax are sums of one number a query and one a key."""
    nodes = context.recording.nodes
    found = node
    while inputs := context.successors.get(found.index, ()):
        dims = found.dims() or ()
        operands = [nodes[ref.node].dims() or () for ref in inputs]
        if found.operation == "AddBackward0" and len(operands) == 2:
            ends = sorted(one[-2:] for one in operands)
            return len(dims) >= 2 and ends == sorted([(1, dims[-1]), (dims[-2], 1)])
        is_passed = found.kind == "view" or found.operation in _PAIRING
        if len(inputs) != 1 or not (is_passed or found is node):
            return False
        found = nodes[inputs[0].node]
    return False


def _has_weight(context: RuleContext, product: NodeRecord) -> bool:
    """Return whether a product of two matrices is that of a linear layer or another parameter."""
    # Linear layers flatten their input first: a batched product is not theirs.
    if product.operation == _PRODUCT:
        return False
    for ref in context.successors.get(product.index, ()):
        found = context.recording.nodes[ref.node]
        while found.kind == "view" or found.operation in _TURNING:
            inputs = context.successors.get(found.index, ())
            if not inputs:
                break
            found = context.recording.nodes[inputs[0].node]
        if found.parameter is not None:
            return True
    return False
