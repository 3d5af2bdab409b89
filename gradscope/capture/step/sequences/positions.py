"""Observes which positions attention lets see the next one, and encodings along examples."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.step.sequences.tokens import MOST_ROWS

FUSED = "scaled_dot_product_attention"
WHOLE = "multi_head_attention_forward"
PRODUCTS = frozenset({"__matmul__", "bmm", "einsum", "matmul"})

_HIDING = -1_000.0
"""Score from which on a softmax gives no weight."""
_WEIGHT = 1e-6
"""Weight of attention below which a position is hidden."""
_SCALING = ("DivBackward", "MulBackward")
_READING = ("ReshapeAliasBackward", "ToCopyBackward", "UnsafeViewBackward", "ViewBackward")
_MOST_ELEMENTS = 2**26
_NEAR = 8
"""Number of operations between a softmax and the product that uses its weights."""


_SUMS = frozenset({"add", "add_"})
_LAYER = "multi_head_attention_forward"
_FUSED = "scaled_dot_product_attention"
_MOST = 32
"""Maximum number of lines that are kept."""


def attention(
    name: str, args: tuple[object, ...], given: Mapping[str, object]
) -> tuple[Tensor, Tensor | None, int] | None:
    """Return keys or values, what each position sees, and their number; None for other calls.

    What is seen is None if all is.
    """
    if name not in (FUSED, WHOLE):
        return _product(name, args)
    query, keys = argument(args, given, 0, "query"), argument(args, given, 1, "key")
    mask = argument(args, given, 3 if name == FUSED else 16, "attn_mask")
    # Of the whole module, it is a hint beside a mask.
    causal = name == FUSED and bool(argument(args, given, 5, "is_causal"))
    if not isinstance(query, Tensor) or not isinstance(keys, Tensor) or keys.is_nested:
        return None
    at = -2 if name == FUSED else 0
    if query.ndim < 3 or query.shape[at] != keys.shape[at]:
        return None
    length = query.shape[at]
    if causal:
        return keys, torch.zeros(1, length, length, dtype=torch.bool, device=keys.device), length
    if isinstance(mask, Tensor) and _is_square(mask, length):
        return keys, _visible(name, mask), length
    return (keys, None, length) if mask is None else None


def _visible(name: str, mask: Tensor) -> Tensor:
    """Return where a mask lets attention see."""
    if mask.dtype != torch.bool:
        return mask > _HIDING
    # True hides in `nn.MultiheadAttention`, and shows in `scaled_dot_product_attention`.
    return ~mask if name == WHOLE else mask


def _product(name: str, args: tuple[object, ...]) -> tuple[Tensor, Tensor | None, int] | None:
    """Return the values, what each position weighs, and their number, of weights times values."""
    operands = args[1:] if name == "einsum" else args
    if len(operands) != 2 or not all(isinstance(one, Tensor) for one in operands):
        return None
    weights, values = operands
    if not isinstance(weights, Tensor) or not isinstance(values, Tensor) or weights.is_nested:
        return None
    length = weights.shape[-1] if weights.ndim >= 3 else 0
    # The first operand of a product by a letter has the rows before the columns.
    if name == "einsum" and not _is_row_by_row(args[0]):
        return None
    if not length or not _is_square(weights, length) or values.ndim < 3:
        return None
    if name != "einsum" and values.shape[-2] != length:
        return None
    if _is_of_softmax(weights):
        return values, weights > _WEIGHT, length
    return (values, weights != 0, length) if _is_of_weighed_scores(weights) else None


def _is_row_by_row(equation: object) -> bool:
    """Return whether an equation sums over the last letter of its first operand."""
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return False
    inputs, output = equation.replace(" ", "").split("->")
    first, _, second = inputs.partition(",")
    return (
        len(first) > 1
        and first[-1] in second
        and first[-1] not in output
        and first[-2] in output
        and first[-2] not in second
    )


def _is_square(mask: Tensor, length: int) -> bool:
    is_small = length > 1 and mask.ndim >= 2 and mask.numel() <= _MOST_ELEMENTS
    return is_small and mask.shape[-2:] == (length, length) and has_numbers(mask)


def next_seen(visible: Tensor, rows: int) -> Tensor | None:
    """Return by sequence and position whether the next position is visible to any head."""
    seen = visible.diagonal(1, -2, -1)
    if seen.ndim == 1:
        return seen.expand(rows, -1)[:MOST_ROWS]
    if seen.shape[0] == 1:
        return seen.flatten(0, -2).any(0).expand(rows, -1)[:MOST_ROWS]
    # Masks of `nn.MultiheadAttention` have one row per sequence and head.
    if seen.shape[0] % rows:
        return None
    return seen.reshape(rows, -1, seen.shape[-1]).any(1)[:MOST_ROWS]


def _is_of_softmax(weights: Tensor) -> bool:
    node = weights.grad_fn
    for _ in range(_NEAR):
        if node is None:
            return False
        if node.name() == "SoftmaxBackward0":
            return True
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return False


def _is_of_weighed_scores(weights: Tensor) -> bool:
    """Return whether weights are products of queries and keys times numbers, as of retention.

    The numbers, which have no gradient, hide what follows, or fade what is long past.
    """
    node, is_weighed = weights.grad_fn, False
    for _ in range(_NEAR):
        if node is None:
            return False
        inputs = [one for one, _ in node.next_functions if one is not None]
        if node.name() == "BmmBackward0":
            return is_weighed
        if len(inputs) != 1 or not node.name().startswith(_SCALING + _READING):
            return False
        is_weighed |= node.name().startswith(_SCALING)
        node = inputs[0]
    return False


class PositionsByExample(NamedTuple):
    """A table of encodings of which each example of a batch gets a row, and its positions one."""

    line: Line
    examples: int
    positions: int


class PositionRowObserver(Observer):
    """Compares the dimension of such a table with the dimension that attention runs along."""

    names = _SUMS | {_LAYER, _FUSED}

    def __init__(self) -> None:
        self.found: list[PositionsByExample] = []
        self._added: list[PositionsByExample] = []

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a part of a table is added, or attention runs after one."""
        if name not in _SUMS:
            return bool(self._added)
        return len(self._added) < _MOST and torch.is_grad_enabled() and len(args) > 1

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep a sum whose rows may be examples, and settle it at the next attention."""
        with DisableTorchFunction():
            if name in _SUMS:
                shape = _shape_of_sum(args)
                if shape is not None and line is not None:
                    self._added.append(PositionsByExample(line, *shape))
                return
            along = _dimensions_of(name, args, kwargs or {})
        self.found += [one for one in self._added if (one.examples, one.positions) == along]
        self._added.clear()

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()
        self._added.clear()


def _shape_of_sum(args: Args) -> tuple[int, int] | None:
    """Return the first two sizes of what gets a row of a table for each element of the first."""
    for states, rows in (args[:2], args[1::-1]):
        if not isinstance(states, Tensor) or not isinstance(rows, Tensor):
            return None
        if states.ndim != 3 or rows.shape != (states.shape[0], 1, states.shape[2]):
            continue
        table = rows._base
        examples, positions, features = states.shape
        # A mask of the keys of each example has this form beside scores, which are square.
        if positions in (1, examples, features) or examples == 1:
            continue
        if table is not None and _is_longer_table(table, rows):
            return examples, positions
    return None


def _is_longer_table(table: Tensor, rows: Tensor) -> bool:
    """Return whether rows are the first ones of a constant that the model keeps.

    What is computed for each example, as an encoding of its time step, has as many rows as it.
    """
    is_start = table.storage_offset() == rows.storage_offset()
    # The table may itself be a view, of a matrix without the dimension of the examples.
    is_longer = table.shape[-1:] == rows.shape[-1:] and table.numel() > rows.numel()
    return table.is_leaf and is_start and is_longer


def _dimensions_of(name: str, args: Args, given: Mapping[str, object]) -> tuple[int, int] | None:
    """Return the number of examples and of positions of an attention."""
    query = argument(args, given, 0, "query")
    if not isinstance(query, Tensor) or query.ndim < 3:
        return None
    if name == _LAYER:  # whatever `batch_first` says, positions come first here
        return (query.shape[1], query.shape[0]) if query.ndim == 3 else None
    return query.shape[0], query.shape[-2]
