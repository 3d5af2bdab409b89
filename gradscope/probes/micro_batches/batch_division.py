"""Splits the model's input into micro-batches of examples."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from gradscope.capture.naming import shape_of
from gradscope.capture.step.graph import tensors
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.context import ProbeContext
from gradscope.recording.evidence.batches import BatchRecord
from gradscope.target.structures import describe, map_items, named_tensors


def probe_batch(context: ProbeContext) -> str | None:
    """Record the shapes of the batch's tensors."""
    shapes = tuple(shape_of(tensor) for tensor in tensors(context.target.batch))
    context.assembler.note(BatchRecord(shapes=shapes))
    return None


Sequence = list[object] | tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A batch split into parts."""

    rows: int
    """Number of examples in the whole batch."""
    parts: tuple[object, ...]
    sizes: tuple[int, ...]
    """Number of examples in each part; they differ by at most one."""
    repeated: tuple[str, ...]
    """Tensors without a batch dimension, which every part contains whole."""


def divide(batch: object, count: int) -> Division:
    """Split a batch into parts along its batch dimension.

    It is the first dimension of most tensors. If the tensors do not share it, it is the second one
    that they share (sequences before examples), or the length of lists of examples. A tensor with
    the examples' elements in sequence, such as flattened targets, is split with them. Everything
    else is repeated.

    Raises:
        GradscopeError: There is no batch dimension, or it has too few examples.
    """
    shape = _BatchShape.of(batch)
    wanted = f"{count} micro-batches"
    if shape is None:
        raise GradscopeError(
            f"{wanted}: the batch has no dimension to split",
            cause=f"it is {describe(batch)}",
            help="use a batch of tensors whose first dimension is the number of examples",
        )
    if shape.rows < count:
        plural = "s" if shape.rows > 1 else ""
        raise GradscopeError(
            f"{wanted}: the batch has {shape.rows} example{plural} only",
            cause=f"it is {describe(batch)}",
            help=f"give a batch of {count} or more, or use fewer micro-batches",
        )
    sizes = tuple(
        shape.rows // count + (position < shape.rows % count) for position in range(count)
    )
    starts = [sum(sizes[:position]) for position in range(count)]
    return Division(
        rows=shape.rows,
        parts=tuple(
            shape.part(batch, start, start + size)
            for start, size in zip(starts, sizes, strict=True)
        ),
        sizes=sizes,
        repeated=tuple(shape.repeated(batch)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchShape:
    """The location of a batch's examples."""

    rows: int
    width: int | None
    """Elements per example along the second dimension; None for lists of examples."""
    is_second: bool
    """Whether examples are along the second dimension of tensors that have two."""
    in_lists: bool

    @classmethod
    def of(cls, batch: object) -> "_BatchShape | None":
        tensors = list(_counted_tensors(batch))
        length = _length_of_lists(batch, tensors)
        if length is not None:
            return cls(rows=length, width=None, is_second=False, in_lists=True)
        if not tensors:
            return None
        rows, is_second = _rows(tensors)
        wide = next((one for one in tensors if one.ndim > 1 and one.shape[0] == rows), None)
        return cls(
            rows=rows,
            width=None if wide is None else wide.shape[1],
            is_second=is_second,
            in_lists=False,
        )

    def part(self, value: object, start: int, stop: int) -> object:
        """Return some examples of a batch."""
        if isinstance(value, PackedSequence):
            return _part_of_packed(value, start, stop)
        if isinstance(value, Tensor):
            return self._part_of_tensor(value, start, stop)
        if _is_sequence(value) and self._are_examples(value):
            # A list, because a tuple of two could be taken for an input and a target.
            return list(value[start:stop])
        return map_items(value, lambda item: self.part(item, start, stop))

    def repeated(self, batch: object) -> Iterator[str]:
        """Yield the tensors without a batch dimension."""
        if self.in_lists:
            return
        for name, tensor in named_tensors(batch, "batch"):
            if tensor.ndim and self._position(tensor) is None and not _within_packed(name, batch):
                yield name

    def _part_of_tensor(self, tensor: Tensor, start: int, stop: int) -> Tensor:
        position = None if self.in_lists else self._position(tensor)
        if position is None:
            return tensor
        dimension, each = position
        chosen = tensor.detach().narrow(dimension, start * each, (stop - start) * each)
        # A leaf of its own, as in the user's batch.
        return chosen.clone().requires_grad_(tensor.requires_grad)

    def _position(self, tensor: Tensor) -> tuple[int, int] | None:
        """Return the dimension of a tensor's examples, and its number of elements per example."""
        shape = tensor.shape
        if self.is_second and tensor.ndim > 1 and shape[1] == self.rows:
            return 1, 1
        if tensor.ndim and shape[0] == self.rows:
            return 0, 1
        if self.width and tensor.ndim and shape[0] == self.rows * self.width > self.rows:
            return 0, self.width
        return None

    def _are_examples(self, value: Sequence) -> bool:
        if len(value) != self.rows:
            return False
        is_first = [isinstance(item, Tensor) and self._position(item) is not None for item in value]
        return self.in_lists or not any(is_first)


def _counted_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors with dimensions, and one per example list of a packed sequence."""
    if isinstance(value, PackedSequence):
        # The first step of a packed sequence has every example, and no number needs to be read.
        yield torch.empty(int(value.batch_sizes[0]), 0)
    elif isinstance(value, Tensor):
        if value.ndim:
            yield value
    else:
        items: list[object] = []
        map_items(value, items.append)
        for item in items:
            yield from _counted_tensors(item)


def _length_of_lists(batch: object, tensors: list[Tensor]) -> int | None:
    """Return the number of examples, if the batch consists of lists of examples."""
    children = list(batch.values()) if isinstance(batch, Mapping) else batch
    if not _is_sequence(children) or not children or not all(map(_is_sequence, children)):
        return None
    lengths = {len(child) for child in children if _is_sequence(child)}
    are_alike = len({tensor.shape[0] for tensor in tensors}) == 1
    if len(lengths) > 1 or (are_alike and len(tensors) > 1):
        return None
    return lengths.pop()


def _rows(tensors: list[Tensor]) -> tuple[int, bool]:
    """Return the number of examples, and whether they are along the second dimension."""
    first = tensors[0]
    second = first.shape[1] if first.ndim > 1 else 0
    is_shared = second > 1 and all(second in one.shape[:2] for one in tensors[1:])
    sizes = Counter(tensor.shape[0] for tensor in tensors if tensor.shape[0] > 1)
    size, count = sizes.most_common(1)[0] if sizes else (1, len(tensors))
    # All tensors agree on the first dimension: nothing is left to guess.
    if count == len(tensors):
        return size, False
    # Sequences of features, together with a tensor per example such as their lengths.
    if is_shared and first.ndim > 2:
        return second, True
    if count > 1:
        return size, False
    # Whole numbers are tokens, which text models often have as positions by examples.
    if is_shared and not first.is_floating_point():
        return second, True
    return first.shape[0] if first.shape[0] > 1 else size, False


def _is_sequence(value: object) -> TypeGuard[Sequence]:
    return type(value) in (list, tuple)


def _within_packed(name: str, batch: object) -> bool:
    return name.endswith(".data") and any(isinstance(v, PackedSequence) for v in _nested(batch))


def _nested(value: object) -> Iterator[object]:
    yield value
    if not isinstance(value, PackedSequence | Tensor):
        items: list[object] = []
        map_items(value, items.append)
        for item in items:
            yield from _nested(item)


def _part_of_packed(packed: PackedSequence, start: int, stop: int) -> PackedSequence:
    padded, lengths = pad_packed_sequence(packed)
    chosen = padded.narrow(1, start, stop - start)
    # A part has another order of lengths than the whole.
    return pack_padded_sequence(chosen, lengths[start:stop], enforce_sorted=False)
