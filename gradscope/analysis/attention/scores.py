"""The part of an attention that only moves the weights of its average: queries and keys."""

from collections.abc import Sequence
from itertools import pairwise

from gradscope.analysis.recording_index import RecordingIndex

_FUSED = "ScaledDotProduct"
"""Prefix of the operations that compute a whole attention; their last input are the values."""

_SOFTMAX = frozenset({"SafeSoftmaxBackward0", "SoftmaxBackward0"})

_OF_WEIGHTS = frozenset(
    {
        "CloneBackward0",
        "ExpandBackward0",
        "MulBackward0",
        "NativeDropoutBackward0",
        "ToCopyBackward0",
    }
)
"""Operations between the softmax of an attention and its product with the values."""


def without_scores(indexed: RecordingIndex, chain: Sequence[int]) -> Sequence[int]:
    """Return a chain of nodes up to where it enters the queries or keys of an attention.

    If the first layer's input gets no gradient, its values are a path of their own. What queries
    and keys get is small by nature, as they only move the weights of an average.

    Args:
        indexed: The recording.
        chain: Nodes in the order of backward, each of which every gradient of the next one passes.
    """
    for position, (node, following) in enumerate(pairwise(chain)):
        inputs = [ref.node for ref in indexed.successors.get(node, ())]
        operation = indexed.recording.nodes[node].operation
        if len(inputs) < 2 or following == inputs[-1] or following not in inputs:
            continue
        is_product = operation == "BmmBackward0" and _is_softmax(indexed, following)
        if operation.startswith(_FUSED) or is_product:
            return chain[: position + 1]
    return chain


def _is_softmax(indexed: RecordingIndex, node: int) -> bool:
    """Return whether an operation is a softmax, also one in another shape or with dropout."""
    record = indexed.recording.nodes[node]
    while record.kind == "view" or record.operation in _OF_WEIGHTS:
        inputs = indexed.successors.get(record.index, ())
        if len(inputs) != 1:
            return False
        record = indexed.recording.nodes[inputs[0].node]
    return record.operation in _SOFTMAX
