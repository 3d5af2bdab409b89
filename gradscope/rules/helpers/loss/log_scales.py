"""Positive tensors whose logarithm enters the loss, and what they scale on their way to it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradscope.recording.evidence.forward import ComparisonRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import linear_signs, signs_of, stat_of
from gradscope.rules.helpers.loss.signed_terms import ERRORS

_BESIDE = ("Abs", "Add", "Clamp", "Clone", "Expand", "Select", "Slice", "Split", "ToCopy")
"""Operations between a scale and its logarithm or its use that keep its direction."""
_CARRIES = (
    "Cat",
    "Flip",
    "Index",
    "LinalgSolveTriangular",
    "Permute",
    "Roll",
    "Stack",
    "Sub",
    "Transpose",
    *_BESIDE,
)
"""Operations that carry what was scaled to the distance, further scales included."""

_MIXING = ("Addmm", "Bmm", "Convolution", "Mm")
"""Linear maps: of as many channels as they take, as the invertible ones of a flow."""


class LogScale(NamedTuple):
    """A positive tensor, and its logarithm in the loss."""

    scale: int
    """Node that makes the positive tensor: `exp(s)`, or what a logarithm is taken of."""
    term: int
    """Node of the logarithm in the loss's sum."""
    sign: int
    """Sign of the logarithm in the loss: 1 if a step makes it smaller, -1 if larger."""


class Scaled(NamedTuple):
    """What a scale does to the rest of the loss."""

    node: NodeRecord
    """The product with the scale, or the quotient."""
    end: NodeRecord
    """The distance or the error in the loss that it makes larger."""
    sign: int
    """1 if a larger scale makes the loss larger, -1 if smaller."""


def log_scales(context: RuleContext, loss: Mapping[int, int]) -> Iterator[LogScale]:
    """Yield the scales whose logarithm enters the loss with one sign.

    Args:
        context: What is judged.
        loss: The loss's sum, as of `linear_signs`.
    """
    for node in context.first.nodes:
        if node.operation == "ExpBackward0":
            yield from _exponential(context, loss, node.index)
        elif node.operation == "LogBackward0" and loss.get(node.index):
            for given in context.inputs(node.index):
                for scale in _back(context, given):
                    yield LogScale(scale, node.index, loss[node.index])


def _exponential(context: RuleContext, loss: Mapping[int, int], node: int) -> Iterator[LogScale]:
    """Yield `exp(s)` if the loss has a term `s`: the one that is nearest to the exponential."""
    exponent = linear_signs(context, context.inputs(node))
    common = [one for one in exponent if one in loss and not _is_addend(context, exponent, one)]
    # An exponent that meets the loss with both signs has no direction.
    signs = {exponent[one] * loss[one] for one in common}
    if len(signs) == 1 and (sign := signs.pop()):
        yield LogScale(node, common[0], sign)


def _is_addend(context: RuleContext, exponent: Mapping[int, int], node: int) -> bool:
    """Return whether a node is an addend of the exponent, such as a bias, rather than all of it."""
    users = [one for one in context.users.get(node, ()) if one in exponent]
    is_leaf = context.recording.nodes[node].kind in ("leaf", "parameter")
    return is_leaf and any(len(context.inputs(one)) > 1 for one in users)


def _back(context: RuleContext, node: int) -> Iterator[int]:
    """Yield what a logarithm is taken of, and what that was made of by shifts and views."""
    while True:
        yield node
        record, inputs = context.recording.nodes[node], context.inputs(node)
        if len(inputs) != 1 or not (record.kind == "view" or record.operation.startswith(_BESIDE)):
            return
        node = inputs[0]


def scaled_by(context: RuleContext, loss: Mapping[int, int], scale: int) -> Iterator[Scaled]:
    """Yield how a scale makes the distances and errors of a loss larger.

    Args:
        context: What is judged.
        loss: The loss's sum, as of `linear_signs`.
        scale: Node of the scale.
    """
    ends = _ends(context, loss)
    for product, power in _products(context, scale):
        stat = stat_of(context, product.index)
        # The product may be a term itself, as `exp(-s) * error` with the learned weight of a task.
        if loss.get(product.index, 0) > 0 and stat is not None and stat.minimum >= 0:
            yield Scaled(product, product, power)
        elif product.index not in loss:
            for end in _carried_to(context, product.index):
                if end in ends:
                    yield Scaled(product, context.recording.nodes[end], power)
                    break


def _products(context: RuleContext, scale: int) -> Iterator[tuple[NodeRecord, int]]:
    """Yield the products with a scale (1), and the quotients by it (-1)."""
    waiting, seen = [(scale, 1)], {scale}
    while waiting:
        index, power = waiting.pop()
        for user in context.users.get(index, ()):
            node, inputs = context.recording.nodes[user], context.inputs(user)
            if user in seen:
                continue
            seen.add(user)
            onward = _power(context, node, inputs, index)
            is_product = node.operation in ("MulBackward0", "DivBackward0")
            # A factor of one sign is a constant on the way. Data that a flow scales have no common
            # sign.
            if is_product and onward and (len(set(inputs)) > 1 or not signs_of(context, user)):
                yield node, power * onward
            elif onward:
                waiting.append((user, power * onward))


def _power(context: RuleContext, node: NodeRecord, inputs: list[int], index: int) -> int:
    """Return 1 if an operation grows with one of its inputs, -1 if it is divided by it, else 0."""
    if node.operation == "DivBackward0" and len(inputs) == 2:
        return 1 if inputs[0] == index else -1
    if node.operation == "ReciprocalBackward0":
        return -1
    if node.kind == "view" or node.operation.startswith((*_BESIDE, "Sqrt")):
        return 1
    if node.operation == "MulBackward0":
        # `std * std` is one tensor twice, and grows with it.
        return 1 if len(set(inputs)) > 1 else (signs_of(context, node.index) or (1,))[0]
    if node.operation == "DivBackward0":
        return (signs_of(context, node.index) or (0,))[0]
    return 0


def _ends(context: RuleContext, loss: Mapping[int, int]) -> frozenset[int]:
    """Return the squares, magnitudes and errors that a step makes smaller."""
    errors = {
        one.result.node
        for one in context.recording.evidence_of(ComparisonRecord)
        if one.operation in ERRORS
    }
    found = set()
    for index, sign in loss.items():
        node, stat = context.recording.nodes[index], stat_of(context, index)
        inputs = context.inputs(index)
        is_even = node.operation.startswith(("Abs", "Pow", "MseLoss", "L1Loss", "SmoothL1")) or (
            node.operation == "MulBackward0" and len(inputs) == 2 and len(set(inputs)) == 1
        )
        # An odd power has both signs, and no minimum to hold the scale.
        is_positive = stat is not None and stat.minimum >= 0
        if sign > 0 and is_positive and (is_even or index in errors):
            found.add(index)
        elif stat is not None and (is_positive if sign > 0 else sign and stat.maximum <= 0):
            found |= _weighed(context, node, inputs)
    return frozenset(found)


def _weighed(context: RuleContext, node: NodeRecord, inputs: list[int]) -> set[int]:
    """Return the squares in a term that weighs them, or divides them by a variance."""
    if node.operation not in ("DivBackward0", "MulBackward0") or len(set(inputs)) != 2:
        return set()
    squares = inputs[:1] if node.operation == "DivBackward0" else inputs
    nodes = [one for square in squares for one in linear_signs(context, [square])]
    return {
        one for one in nodes if context.recording.nodes[one].operation.startswith(("Abs", "Pow"))
    }


def _carried_to(context: RuleContext, node: int) -> Iterator[int]:
    """Yield the operations that what was scaled reaches through sums, parts and other scales."""
    waiting, seen = [node], {node}
    while waiting:
        index = waiting.pop()
        for user in context.users.get(index, ()):
            if user in seen:
                continue
            seen.add(user)
            yield user
            record = context.recording.nodes[user]
            is_mixed = record.operation.startswith(_MIXING) and record.dims() == (
                context.recording.nodes[index].dims()
            )
            if record.kind == "view" or record.operation.startswith(_CARRIES) or is_mixed:
                waiting.append(user)
