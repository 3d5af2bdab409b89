"""What a loss is made of that grows as a model fits its data: densities, signals, overlaps."""

import math
from collections.abc import Iterator

from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import signs_of, stat_of

_NORMAL = 0.5 * math.log(2 * math.pi)
"""What the logarithm of a normal density subtracts for each dimension."""
_TOLERANCE = 1e-5
_DIMENSIONS = 64

_PICKS = frozenset({"GatherBackward0", "IndexBackward0", "TakeBackward0"})
_SUMS = frozenset(
    {"AddBackward0", "MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1"}
)
_CHOICES = frozenset({"MulBackward0", "WhereBackward0"})
"""Operations that leave positions of padding out."""
_LOGARITHMS = frozenset({"Log10Backward0", "LogBackward0"})
_POWERS = frozenset({"LinalgVectorNormBackward0", "NormBackward1", "PowBackward0"})


def is_normal_constant(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a difference subtracts the constant of a normal density from its only input.

    The difference from a constant has the same range, so that only the size of the number tells.
    """
    return node.operation == "SubBackward0" and _shift(context, node) > 0


def belongs_to_density(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a difference from its only input is part of a normal density.

    `Normal.log_prob` subtracts the logarithm of the deviation first, which may be a number.
    """
    nodes = context.recording.nodes
    return is_normal_constant(context, node) or any(
        is_normal_constant(context, nodes[one]) for one in context.users.get(node.index, ())
    )


def shifts_by_normal_constant(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a sum or difference adds or subtracts the constant of a normal density."""
    is_sum = node.operation == "AddBackward0" and _shift(context, node) < 0
    return is_sum or is_normal_constant(context, node)


def _shift(context: RuleContext, node: NodeRecord) -> int:
    """Return how many times the constant of one dimension was subtracted; 0 for other numbers."""
    inputs = context.inputs(node.index)
    before = stat_of(context, inputs[0]) if len(inputs) == 1 else None
    after = stat_of(context, node.index)
    if before is None or after is None:
        return 0
    ends = [(before.minimum, after.minimum), (before.maximum, after.maximum)]
    # Rounding of the numbers that the constant was subtracted from.
    scale = _TOLERANCE * max(1.0, *(abs(one) for pair in ends for one in pair))
    low, high = (one - two for one, two in ends)
    if not math.isfinite(low) or abs(low - high) >= scale:
        return 0
    count = round(low / _NORMAL)
    is_multiple = abs(count) <= _DIMENSIONS and abs(low - count * _NORMAL) < scale
    return count if is_multiple else 0


def is_normalised_score(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a tensor is the score of one path minus the logsumexp of those of all.

    As of a conditional random field, or of classes: their log-likelihood, which has no gradient
    upwards beyond 0.
    """
    inputs, stat = context.inputs(node.index), stat_of(context, node.index)
    if node.operation != "SubBackward0" or len(inputs) != 2 or stat is None:
        return False
    total = context.behind_views(inputs[1])
    if total.operation != "LogsumexpBackward0" or stat.maximum > 0:
        return False
    behind = {one.index for one in context.behind([total.index])}
    return any(one in behind for one in _picked_from(context, inputs[0]))


def _picked_from(context: RuleContext, start: int) -> Iterator[int]:
    """Yield the tensors of whose elements a sum of scores was picked."""
    waiting, seen = [start], {start}
    while waiting:
        node = context.recording.nodes[waiting.pop()]
        inputs = context.inputs(node.index)
        if node.operation in _PICKS:
            yield from (context.behind_views(one).index for one in inputs)
        elif node.kind == "view" or node.operation in _SUMS | _CHOICES:
            fresh = [one for one in inputs if one not in seen]
            seen.update(fresh)
            waiting += fresh


def is_signal_to_noise(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a tensor is the logarithm of a signal's power over that of what differs."""
    if node.operation not in _LOGARITHMS:
        return False
    quotient = _without_shifts(context, context.inputs(node.index)[0])
    parts = context.inputs(quotient.index)
    stats = [stat_of(context, one) for one in (quotient.index, *parts)]
    is_positive = all(one is not None and one.minimum >= 0 for one in stats)
    if quotient.operation not in ("DivBackward0", "ReciprocalBackward0") or not is_positive:
        return False
    if len(parts) == 1 and context.behind_views(parts[0]).operation == "MseLossBackward0":
        return _is_below(context, quotient, parts[0])
    noise = _power_of(context, parts[-1])
    # The ratio of two distances compares two fits, as a margin does.
    signal = _power_of(context, parts[0]) if len(parts) == 2 else None
    is_part = signal is not None and signal.operation in ("DivBackward0", "MulBackward0")
    if noise is None or noise.operation != "SubBackward0":
        return False
    return is_part if len(parts) == 2 else _is_below(context, quotient, parts[0])


def _is_below(context: RuleContext, quotient: NodeRecord, part: int) -> bool:
    """Return whether an only input with a gradient is what was divided by: larger, the less."""
    above, below = stat_of(context, quotient.index), stat_of(context, part)
    if quotient.operation == "ReciprocalBackward0":
        return True
    return above is not None and below is not None and not _is_uniform_quotient(below, above)


def _is_uniform_quotient(before: ForwardStat, after: ForwardStat) -> bool:
    """Return whether one factor leads from a tensor's range to that of another."""
    if before.numel == 1 or not before.minimum:
        return True
    ratios = (after.minimum / before.minimum, after.maximum / before.maximum)
    return math.isclose(*ratios, rel_tol=1e-3)


def is_overlap(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a tensor is the overlap of shares with a mask, over the size of both."""
    inputs, stat = context.inputs(node.index), stat_of(context, node.index)
    if node.operation != "DivBackward0" or len(inputs) != 2 or stat is None:
        return False
    if stat.minimum < 0 or stat.maximum > 1:
        return False
    common, sizes = (_without_shifts(context, one) for one in inputs)
    union = context.inputs(sizes.index)
    # What both have in common counts once: `sizes - common`.
    is_union = sizes.operation == "SubBackward0" and union[1:] == [common.index]
    if is_union:
        sizes = _without_shifts(context, union[0])
    product = _summed(context, common)
    if product is None or product.operation != "MulBackward0":
        return False
    shares = [context.behind_views(one).index for one in context.inputs(product.index)]
    if len(shares) != 1:
        return False
    of_shares, of_product = stat_of(context, shares[0]), stat_of(context, product.index)
    if of_shares is None or of_product is None or sizes.operation not in _SUMS:
        return False
    # A mask keeps some shares as they are, and makes the rest 0.
    is_mask = of_product.zeros and of_product.maximum <= of_shares.maximum <= 1
    total = _summed(context, sizes)
    is_same = total is not None and context.behind_views(total.index).index == shares[0]
    size = stat_of(context, sizes.index)
    added_to = union[0] if is_union else inputs[1]
    return bool(is_mask and is_same and size is not None and _has_mask_added(context, added_to))


def _has_mask_added(context: RuleContext, node: int) -> bool:
    """Return whether more than a small constant is added to the sum of the shares."""
    while True:
        record, inputs = context.recording.nodes[node], context.inputs(node)
        if record.operation != "AddBackward0" or len(inputs) != 1:
            return False
        before, after = stat_of(context, inputs[0]), stat_of(context, node)
        if before is None or after is None:
            return False
        low, high = (after.minimum - before.minimum, after.maximum - before.maximum)
        # The size of the mask differs between examples, or is no number of one digit.
        if abs(low - high) > 1e-3 * abs(before.maximum) or low > 1.5:
            return True
        node = inputs[0]


def _summed(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return what was summed up, None for anything but a sum."""
    if not node.operation.startswith("SumBackward"):
        return None
    return context.behind_views(context.inputs(node.index)[0])


def _power_of(context: RuleContext, start: int) -> NodeRecord | None:
    """Return what a power or norm is of; None where it is not the sum of squares of a tensor."""
    node = _without_shifts(context, start)
    while node.operation in (*_SUMS, "SqrtBackward0") and len(context.inputs(node.index)) == 1:
        node = context.behind_views(context.inputs(node.index)[0])
    inputs = context.inputs(node.index)
    is_square = node.operation == "MulBackward0" and len(inputs) == 2 and len(set(inputs)) == 1
    if node.operation not in _POWERS and not is_square:
        return None
    return context.behind_views(inputs[0])


def _without_shifts(context: RuleContext, index: int) -> NodeRecord:
    """Return what small constants were added to, or one positive factor multiplied."""
    node = context.behind_views(index)
    while len(inputs := context.inputs(node.index)) == 1:
        is_shift = node.operation in ("AddBackward0", "ClampBackward1", "ClampMinBackward0")
        is_scale = node.operation == "MulBackward0" and signs_of(context, node.index) == (1,)
        if not (is_shift or is_scale):
            break
        node = context.behind_views(inputs[0])
    return node
