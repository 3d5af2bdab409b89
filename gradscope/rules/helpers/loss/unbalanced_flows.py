"""Densities of what a flow scales, without the logarithm of the scale."""

from collections.abc import Iterator

from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.gains import shifts_by_normal_constant
from gradscope.rules.helpers.loss.linear_ways import inputs_of, linear_signs, signs_of, stat_of

_SCALES = ("ExpBackward", "SigmoidBackward", "SoftplusBackward")
_CARRIES = (
    "Add",
    "Cat",
    "Clone",
    "CopySlices",
    "Flip",
    "Index",
    "Mul",
    "Slice",
    "Split",
    "Stack",
    "Sub",
    "Where",
)
"""Operations that carry what a layer of a flow has scaled to the next one."""


def unbalanced_scale(context: RuleContext) -> NodeRecord | None:
    """Return the last scale of data that only the square of a standard normal density sees.

    Its minimum is a scale of 0: nothing else in the loss holds it. None for any other loss.
    """
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    ends = [one for one in loss if not signs_of(context, one)]
    squared = [one for one in ends if context.recording.nodes[one].operation == "PowBackward0"]
    # A further term, such as the logarithm of a scale, may hold it.
    if len(ends) != 1 or not squared or loss[squared[0]] <= 0:
        return None
    if not any(shifts_by_normal_constant(context, context.recording.nodes[one]) for one in loss):
        return None
    return next(
        _scales_before(context, _unshifted(context, inputs_of(context, squared[0])[0])), None
    )


def cut_logarithm(context: RuleContext, scaled: NodeRecord) -> PathCutRecord | None:
    """Return the cut behind which a term of the loss was made of the scale's own parameters.

    It is the logarithm, most likely: computed, and added without a gradient.
    """
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    own = context.parameters_behind([scaled.index])
    for cut in context.recording.evidence_of(PathCutRecord):
        if own.intersection(cut.parameters) and any(join in loss for join in cut.joins):
            return cut
    return None


def _unshifted(context: RuleContext, node: int) -> int | None:
    """Return what a mean of 0 is subtracted from; None for another mean, such as a target."""
    inputs = inputs_of(context, node)
    if context.recording.nodes[node].operation != "SubBackward0":
        return node
    before = stat_of(context, inputs[0]) if len(inputs) == 1 else None
    after = stat_of(context, node)
    if before is None or after is None:
        return None
    is_same = (before.minimum, before.maximum) == (after.minimum, after.maximum)
    return inputs[0] if is_same else None


def _scales_before(context: RuleContext, start: int | None) -> Iterator[NodeRecord]:
    """Yield the positive factors of what a tensor is put together of."""
    waiting = [] if start is None else [start]
    seen = set(waiting)
    while waiting:
        node = context.recording.nodes[waiting.pop(0)]
        inputs = inputs_of(context, node.index)
        for one in inputs if node.operation == "MulBackward0" else ():
            factor = context.recording.nodes[one]
            if factor.operation.startswith(_SCALES) and not _is_balanced(context, factor):
                yield node
        if node.kind == "view" or node.operation.startswith(_CARRIES):
            fresh = [one for one in inputs if one not in seen]
            seen.update(fresh)
            waiting += fresh


def _is_balanced(context: RuleContext, scale: NodeRecord) -> bool:
    """Return whether the logarithms of a scale add up to 0, so that volumes stay the same."""
    exponent = context.recording.nodes[inputs_of(context, scale.index)[0]]
    parts = [context.recording.nodes[one] for one in inputs_of(context, exponent.index)]
    return exponent.operation == "SubBackward0" and any(
        one.operation.startswith("MeanBackward") for one in parts
    )
