"""Dimensions that are taken for others: reordering views, and examples taken for time steps."""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from gradscope.recording.evidence.forward import SoftmaxRecord
from gradscope.recording.records import ModuleCallRecord, NodeRecord, TensorRef
from gradscope.rules.context import RuleContext

# `reshape` leaves an unsafe view if it has to copy, and so does a matrix product of three
# dimensions.
_VIEWS = frozenset({"ReshapeAliasBackward0", "UnsafeViewBackward0", "ViewBackward0"})
Dims = tuple[int, ...]

_SEQUENTIAL = frozenset({"GRU", "LSTM", "MultiheadAttention", "RNN"})

_SELECTING = "SelectBackward0"

_ATTENDING = ("ViewBackward0",)
_RECURRENT = ("CatBackward0", "MkldnnRnnLayerBackward0", "StackBackward0")
"""Operations that make a result whose first dimension is time: with `batch_first=True`, a
transposition follows. The graph of cuDNN's recurrent layers does not tell the two apart.
"""


class ReorderedView(NamedTuple):
    """A view that stands for a permutation."""

    node: NodeRecord
    before: Dims
    after: Dims
    is_certain: bool
    """Whether no other reason for the view is known, such as a layout that a script means."""


def reordered_views(context: RuleContext) -> Iterator[ReorderedView]:
    """Yield the views that stand for a permutation.

    Of inspected models, the first dimensions are left to the repeated forward.
    """
    nodes = context.recording.nodes
    last = {one.node: one.dimension for one in context.recording.evidence_of(SoftmaxRecord)}
    for node in nodes:
        inputs = context.successors.get(node.index, ())
        if node.operation not in _VIEWS or len(inputs) != 1:
            continue
        before, after = nodes[inputs[0].node].outputs[inputs[0].slot], node.outputs[0]
        if before is None or after is None:
            continue
        two = before.dims, after.dims
        users = context.users.get(node.index, ())
        are_classes = any(last.get(user) == len(after.dims) - 1 for user in users)
        first = _exchanged(*two)
        is_told = first is not None and (first > 0 or context.run is not None)
        if first and not are_classes and _may_be_heads(*before.dims[first : first + 2]):
            is_told = False
        is_first = context.run is not None and (_is_rotated(*two) or _are_parts_moved(*two))
        if (
            is_first
            or (is_told and not _is_of_shift(context, node))
            or _is_mixed(*two)
            or _is_mixed(*reversed(two))
            or (are_classes and _are_classes_joined(*two))
        ):
            yield ReorderedView(node, *two, is_certain=not first or are_classes)


def _exchanged(before: Dims, after: Dims) -> int | None:
    """Return the first of two neighbouring dimensions of three or more that change places."""
    apart = [at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other]
    if len(after) < 3 or len(before) != len(after) or len(apart) != 2:
        return None
    first, second = apart
    # A dimension of size 1 may change places: the numbers keep their order.
    is_exchanged = (after[first], after[second]) == (before[second], before[first])
    return (
        first
        if is_exchanged and second == first + 1 and min(after[first : second + 1]) > 1
        else None
    )


def _may_be_heads(first: int, second: int) -> bool:
    """Return whether dimensions that change places may be split into heads, or joined.

    torch's attention reads `[length, examples, features]` as `[length, examples * heads, size]`. If
    the size is the number of examples, the two last dimensions seem to change places.
    """
    return max(first, second) % min(first, second) == 0


def _is_of_shift(context: RuleContext, view: NodeRecord) -> bool:
    """Return whether a view moves each row by one element more than the row before.

    The scores of relative positions are moved like that: read with two dimensions exchanged, cut,
    and read with both exchanged back.
    """
    nodes, made = context.recording.nodes, _input(context, view)
    if made is not None and made.operation == "SliceBackward0":
        first = _input(context, made)
        return first is not None and first.operation in _VIEWS
    cuts = [nodes[one] for one in context.users.get(view.index, ())]
    return any(
        cut.operation == "SliceBackward0" and nodes[user].operation in _VIEWS
        for cut in cuts
        for user in context.users.get(cut.index, ())
    )


def _input(context: RuleContext, node: NodeRecord) -> NodeRecord | None:
    """Return the only input of an operation; None if it has several."""
    inputs = context.successors.get(node.index, ())
    return context.recording.nodes[inputs[0].node] if len(inputs) == 1 else None


def _is_rotated(before: Dims, after: Dims) -> bool:
    """Return whether three dimensions of different sizes move on by one or two places."""
    # Equal sizes would not show which of them moved.
    if len(before) != 3 or len(set(before)) < 3 or min(before) < 2:
        return False
    first, second, third = before
    return after in ((third, first, second), (second, third, first))


def _are_parts_moved(before: Dims, after: Dims) -> bool:
    """Return whether `[rows, parts * size]` is `[parts, rows, size]`, or the other way round.

    So are heads that a view splits off in front of the rows. Where the parts divide the rows, it
    may be neighbouring rows that are meant.
    """
    three, two = (after, before) if len(after) == 3 else (before, after)
    if len(three) != 3 or len(two) != 2:
        return False
    parts, rows, size = three
    return two == (rows, parts * size) and parts > 1 and rows % parts != 0


def _is_mixed(four: Dims, three: Dims) -> bool:
    """Return whether `[n, heads, time, size]` is `[n, time, heads * size]`, which moves the heads.

    It needs a transposition of `heads` and `time`. Where both are equal, it may have had one.
    """
    if len(four) != 4 or len(three) != 3:
        return False
    rows, heads, time, size = four
    return three == (rows, time, heads * size) and heads != time and min(heads, time) > 1


def _are_classes_joined(before: Dims, after: Dims) -> bool:
    """Return whether `[n, classes, …]` becomes `[…, classes]`, of which a softmax follows."""
    if len(before) < 3 or len(after) < 2:
        return False
    classes = after[-1]
    # Another dimension of this size may be that of the classes.
    is_second = before[1] == classes and classes not in before[2:] and classes > 1
    return is_second and prod(before[2:]) > 1 and after != before


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
