"""Observes encodings of positions that are added along the examples of a batch."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line

_SUMS = frozenset({"add", "add_"})
_LAYER = "multi_head_attention_forward"
_FUSED = "scaled_dot_product_attention"
_MOST = 32
"""Maximum number of lines that are kept."""


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
    query = args[0] if args else given.get("query")
    if not isinstance(query, Tensor) or query.ndim < 3:
        return None
    if name == _LAYER:  # whatever `batch_first` says, positions come first here
        return (query.shape[1], query.shape[0]) if query.ndim == 3 else None
    return query.shape[0], query.shape[-2]
