"""Layers that take the examples of a batch for time steps, told by the graph alone."""

from collections.abc import Iterator

from gradscope.recording.records import ModuleCallRecord, TensorRef
from gradscope.rules.context import RuleContext

_SEQUENTIAL = frozenset({"GRU", "LSTM", "MultiheadAttention", "RNN"})

_SELECTING = "SelectBackward0"

_ATTENDING = ("ViewBackward0",)
_RECURRENT = ("CatBackward0", "MkldnnRnnLayerBackward0", "StackBackward0")
"""Operations that make a result whose first dimension is time: with `batch_first=True`, a
transposition follows. The graph of cuDNN's recurrent layers does not tell the two apart.
"""


def layers_over_examples(context: RuleContext, rows: int) -> Iterator[ModuleCallRecord]:
    """Yield the calls of layers whose first dimension is time to them, and examples to the loss.

    The model then selects one of the second dimension, as in `out[:, -1]`: the second dimension
    is that of time to the author. Whoever runs over time first selects `out[-1]`.

    Args:
        context: The recording.
        rows: Number of examples, one target each.
    """
    for call in context.recording.calls:
        kind = context.recording.modules[call.module].class_name
        made_by = _ATTENDING if kind == "MultiheadAttention" else _RECURRENT
        is_read = any(_is_read_across(context, ref, rows, made_by) for ref in call.outputs)
        if call.graph == 0 and kind in _SEQUENTIAL and is_read:
            yield call


def _is_read_across(
    context: RuleContext, output: TensorRef, rows: int, made_by: tuple[str, ...]
) -> bool:
    node = context.recording.nodes[output.node]
    dims = node.dims(output.slot) or ()
    # With as many time steps as examples, the shape does not tell which dimension is which.
    is_batch = len(dims) == 3 and dims[0] == rows and dims[1] not in (1, rows)
    if not is_batch or node.operation not in made_by:
        return False
    return any(_selects(context, one, dims[:2]) for one in _followers(context, output.node, dims))


def _followers(context: RuleContext, start: int, dims: tuple[int, ...]) -> Iterator[int]:
    """Yield a node, and those after it that keep its first two dimensions, be they joined."""
    # A linear layer joins the first dimensions and separates them again behind its product.
    kept = (dims[:2], (dims[0] * dims[1],))
    waiting, seen = [start], {start}
    while waiting:
        position = waiting.pop()
        yield position
        for user in context.users.get(position, ()):
            shape = context.recording.nodes[user].dims() or ()
            if user not in seen and any(shape[: len(one)] == one for one in kept):
                seen.add(user)
                waiting.append(user)


def _selects(context: RuleContext, position: int, first: tuple[int, ...]) -> bool:
    """Return whether one of the second dimension is selected from a result."""
    before = context.recording.nodes[position].dims() or ()
    if before[:2] != first:
        return False
    users = (context.recording.nodes[user] for user in context.users.get(position, ()))
    return any(
        user.operation == _SELECTING and user.dims() == (before[0], *before[2:]) for user in users
    )
