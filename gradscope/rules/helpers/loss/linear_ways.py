"""Signs with which a tensor enters another through sums, negations and constant factors."""

import math
from collections.abc import Iterable, Mapping

from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.flow import SAME_NUMBERS
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats

_SUMS = SAME_NUMBERS | {
    "AddBackward0",
    "CatBackward0",
    "MeanBackward0",
    "MeanBackward1",
    "StackBackward0",
    "SumBackward0",
    "SumBackward1",
}
_NEGATIONS = frozenset({"NegBackward0", "RsubBackward0", "RsubBackward1"})
_FACTORS = frozenset({"DivBackward0", "MulBackward0"})

# Rounding of the difference of float32 numbers that are a thousand times as large.
_TOLERANCE = 1e-4
_SHORT = 1e-3
"""Rounding of a hundred times a number; one in five hundred numbers is as near by chance."""


def linear_signs(context: RuleContext, starts: Iterable[int]) -> Mapping[int, int]:
    """Return what some tensors are sums of, each with its sign: 1, -1, or 0 if it has both.

    Args:
        context: What is judged.
        starts: Nodes of the tensors.
    """
    waiting = [(node, 1) for node in starts]
    seen = set(waiting)
    found: dict[int, int] = {}
    while waiting:
        node, sign = waiting.pop()
        found[node] = sign if found.get(node, sign) == sign else 0
        inputs = context.inputs(node)
        # Other operations have no signs, and the sums end there.
        for one, factor in zip(inputs, signs_of(context, node), strict=False):
            if (one, sign * factor) not in seen:
                seen.add((one, sign * factor))
                waiting.append((one, sign * factor))
    return found


def signs_of(context: RuleContext, index: int) -> tuple[int, ...]:
    """Return the signs of a linear operation's inputs; nothing for another operation.

    A factor without a gradient counts as constant if its elements have one sign.
    """
    node, inputs = context.recording.nodes[index], context.inputs(index)
    if node.kind == "view" or node.operation in _SUMS:
        return (1,) * len(inputs)
    if len(inputs) == 1:
        sign = -1 if node.operation in _NEGATIONS else _sign_beside_data(context, node, inputs[0])
        return (sign,) if sign else ()
    return (1, -1) if node.operation == "SubBackward0" else ()


def stat_of(context: RuleContext, node: int) -> ForwardStat | None:
    """Return the values of a node's first output; of a view, those of the tensor it views."""
    stats = context.shared(forward_stats)
    while (found := stats.get(TensorRef(node=node, slot=0))) is None:
        inputs = context.inputs(node)
        if context.recording.nodes[node].kind != "view" or len(inputs) != 1:
            return None
        node = inputs[0]
    return found


def _sign_beside_data(context: RuleContext, node: NodeRecord, given: int) -> int:
    """Return the sign of an only input with a gradient, 0 where the values do not tell it."""
    before, after = stat_of(context, given), stat_of(context, node.index)
    if before is None or after is None or before.numel == 0:
        return 0
    if node.operation == "SubBackward0":
        return _sign_in_difference(before, after)
    # Two tensors of one sign each tell the sign of the factor, even if its size varies.
    if node.operation == "MulBackward0" and (sign := _sign(before) * _sign(after)):
        return sign
    return _sign_of_factor(before, after) if node.operation in _FACTORS else 0


def _sign_in_difference(before: ForwardStat, after: ForwardStat) -> int:
    """Return 1 if a constant was subtracted, -1 if the tensor was, from a constant, 0 if unknown.

    Both give the same range. A log-likelihood, which is negative before and after, is no remainder,
    and the constant of one of the two is more likely a number of two decimals, such as 0 or 1.
    """
    ends = (*_ends(before), *_ends(after))
    if not all(map(math.isfinite, ends)):
        return 0
    scale = _TOLERANCE * max(1e-12, *map(abs, ends))
    low, high = (a - b for a, b in zip(_ends(before), _ends(after), strict=True))
    if abs(low - high) > scale:
        return 0
    if (before.maximum <= 0 and after.maximum <= 0) or abs(low) <= scale:
        return 1
    return int(_is_short(low)) - int(_is_short(before.minimum + after.maximum))


def _is_short(number: float) -> bool:
    """Return whether a number has two decimals at most, as those of formulas."""
    return abs(100 * number - round(100 * number)) < _SHORT


def _sign_of_factor(before: ForwardStat, after: ForwardStat) -> int:
    """Return the sign of a factor that is the same for all elements, else 0."""
    for sign, ends in ((1, _ends(after)), (-1, tuple(reversed(_ends(after))))):
        factors = [b / a for a, b in zip(_ends(before), ends, strict=True) if a]
        is_one = len(factors) == 2 and math.isclose(*factors, rel_tol=_TOLERANCE)
        if is_one and factors[0] * sign > 0:
            return sign
    return 0


def _ends(stat: ForwardStat) -> tuple[float, float]:
    return stat.minimum, stat.maximum


def _sign(stat: ForwardStat) -> int:
    if stat.minimum >= 0 and stat.maximum > 0:
        return 1
    return -1 if stat.minimum < 0 and stat.maximum <= 0 else 0
