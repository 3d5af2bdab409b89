"""Cross-entropies of two classes by hand: the logarithms of a probability and of the rest."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import linear_signs, stat_of
from gradscope.rules.helpers.loss.signed_terms import scale_of

_CLASSES = frozenset({"SigmoidBackward0", "SoftmaxBackward0"})
_KEEPING = ("Add", "Clamp", "Clone", "Pow", "ToCopy")
"""Operations that grow with a probability."""
_SUMMING = ("Add", "Mean", "Sub", "Sum")
_REST = frozenset({"RsubBackward0", "RsubBackward1"})


class _Logarithm(NamedTuple):
    """A logarithm that enters the loss."""

    node: NodeRecord
    probability: int
    """Node of the probability."""
    is_of_rest: bool
    """Whether it is the logarithm of 1 - p."""


def minimised_likelihoods(context: RuleContext) -> Iterator[NodeRecord]:
    """Yield the logarithms of a probability and of the rest if a step makes both smaller.

    In the order of the forward.

    A cross-entropy is their negative sum, weighed by the targets, and by `(1 - p)**n` in a focal
    loss. A logarithm that its own probability weighs is part of an entropy. A sum that data weigh
    may be the log-probability of an action, and its cost.
    """
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    found: dict[int, list[_Logarithm]] = {}
    opposed = set[int]()
    for one, sign in _logarithms(context, loss):
        if sign > 0 and not _is_weighed_later(context, loss, one.node.index):
            found.setdefault(one.probability, []).append(one)
        else:
            opposed.add(one.probability)
    for probability, logarithms in found.items():
        if probability not in opposed and len({one.is_of_rest for one in logarithms}) == 2:
            nodes = [one.node for one in logarithms]
            yield from sorted(nodes, key=lambda node: node.sequence or 0)


def _logarithms(context: RuleContext, loss: Mapping[int, int]) -> Iterator[tuple[_Logarithm, int]]:
    for index, sign in loss.items():
        node = context.recording.nodes[index]
        if node.operation == "LogBackward0":
            if (found := _logarithm(context, node)) is not None:
                yield found, sign
        elif node.operation == "MulBackward0" and len(inputs := context.inputs(index)) == 2:
            for own, factor in (inputs, reversed(inputs)):
                found = _logarithm(context, context.recording.nodes[own])
                if found is not None:
                    yield found, sign if _is_of_other(context, factor, found) else 0


def _is_weighed_later(context: RuleContext, loss: Mapping[int, int], node: int) -> bool:
    """Return whether data multiply a sum of logarithms: a policy's costs may."""
    waiting, seen = [(node, False)], {(node, False)}
    while waiting:
        index, is_summed = waiting.pop()
        for user in context.users.get(index, ()):
            record = context.recording.nodes[user]
            if user not in loss:
                continue
            if is_summed and record.operation == "MulBackward0" and not _is_constant(context, user):
                return True
            onward = user, is_summed or record.operation.startswith(_SUMMING)
            if onward not in seen:
                seen.add(onward)
                waiting.append(onward)
    return False


def _is_constant(context: RuleContext, product: int) -> bool:
    """Return whether a product has one factor for all elements; for a single number, it is 1."""
    made, given = stat_of(context, product), stat_of(context, context.inputs(product)[0])
    if made is None or given is None:
        return False
    is_one = math.isclose(made.norm, given.norm, rel_tol=1e-5)
    return is_one or scale_of(context, context.recording.nodes[product]) is not None


def _logarithm(context: RuleContext, node: NodeRecord) -> _Logarithm | None:
    if node.operation != "LogBackward0":
        return None
    behind = _probability(context, context.inputs(node.index)[0])
    return None if behind is None else _Logarithm(node, *behind)


def _is_of_other(context: RuleContext, factor: int, logarithm: _Logarithm) -> bool:
    """Return whether a factor is positive, and larger the less likely the logarithm's class is."""
    stat, behind = stat_of(context, factor), _probability(context, factor)
    is_positive = stat is not None and stat.minimum >= 0
    return is_positive and behind == (logarithm.probability, not logarithm.is_of_rest)


def _probability(context: RuleContext, node: int) -> tuple[int, bool] | None:
    """Return the probability that a tensor grows with, or falls with; None for another tensor."""
    is_rest = False
    while context.recording.nodes[node].operation not in _CLASSES:
        record, inputs = context.recording.nodes[node], context.inputs(node)
        # Targets weigh the factor of a focal loss.
        is_weighed = record.operation == "MulBackward0"
        is_kept = record.kind == "view" or record.operation.startswith(_KEEPING) or is_weighed
        if len(inputs) != 1 or not (is_kept or record.operation in _REST):
            return None
        is_rest ^= record.operation in _REST
        node = inputs[0]
    return node, is_rest
