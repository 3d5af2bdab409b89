"""Residual blocks whose shortcut is detached: only their layers pass gradients on."""

from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.records import TensorRef
from gradscope.rules.context import RuleContext

_LEAST = 2
"""Number of blocks. Chosen: a single sum with a detached tensor may be meant."""


def is_cut_shortcut(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a line adds detached inputs to what layers make of the same inputs.

    In several blocks. A straight-through estimator adds to the input itself, without a layer.
    """
    if cut.operation not in ("data", "detach") or len(cut.joins) < _LEAST:
        return False
    nodes, origins = context.recording.nodes, set(cut.origins)
    for join in cut.joins:
        operands = context.successors.get(join, ())
        # The detached shortcut has no edge.
        if nodes[join].operation != "AddBackward0" or len(operands) != 1:
            return False
        if not _is_layers_of(context, operands[0], origins):
            return False
    return True


def _is_layers_of(context: RuleContext, tensor: TensorRef, origins: set[TensorRef]) -> bool:
    """Return whether layers made a tensor of one of several others."""
    nodes = context.recording.nodes
    waiting, seen = [tensor], {tensor}
    has_layer = has_origin = False
    while waiting:
        one = waiting.pop()
        if one in origins:
            has_origin = True
            continue
        has_layer = has_layer or nodes[one.node].kind == "parameter"
        fresh = [ref for ref in context.successors.get(one.node, ()) if ref not in seen]
        seen.update(fresh)
        waiting += fresh
    return has_origin and has_layer and tensor not in origins
