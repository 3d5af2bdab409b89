"""Count sketches of gradients (see `gradscope.recording.count_sketch`), computed by torch."""

import torch
from torch import Tensor

from gradscope.recording.count_sketch import (
    BUCKETS,
    HASH_FIRST,
    HASH_HIGH,
    HASH_SECOND,
    HASH_SIGN,
)

_BLOCK = 1 << 16
"""Number of elements hashed at a time on a CPU. Their indices fit its cache."""
_DEVICE_BLOCK = 1 << 20
_REMEMBERED = 1 << 20
"""Number of indices whose hashes are cached: nearly all elements of most models."""

_SECOND, _HIGH = HASH_SECOND - (1 << 32), HASH_HIGH - (1 << 32)
"""As signed numbers with the same bits: torch has few operations on unsigned ones."""


class Sketcher:
    """Makes sketches of gradients on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._block = _BLOCK if device.type == "cpu" else _DEVICE_BLOCK
        # float32 sums would lose the small differences that sketches are compared for.
        self._sums = torch.float32 if device.type == "mps" else torch.float64
        self._hashes: dict[int, tuple[Tensor, Tensor]] = {}
        """By first index: buckets and signs of a block of elements."""

    def sketch(self, values: Tensor) -> Tensor:
        """Return the buckets of a one-dimensional gradient."""
        total = self._empty()
        for start in range(0, values.numel(), self._block):
            block = values[start : start + self._block].to(self._sums)
            buckets, signs = self._hash_of(start)
            total.index_add_(0, buckets[: len(block)], block * signs[: len(block)])
        return total

    def sketch_rows(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return the buckets of a gradient with only some non-zero rows.

        Args:
            rows: Indices of the rows.
            values: `[rows, elements of a row]`.
        """
        total = self._empty()
        columns = torch.arange(values.shape[1], device=self._device)
        at_once = max(1, self._block // max(1, values.shape[1]))
        for positions, block in zip(rows.split(at_once), values.split(at_once), strict=True):
            indices = (positions[:, None] * values.shape[1] + columns).reshape(-1)
            buckets, signs = self._hashed(indices)
            total.index_add_(0, buckets, block.reshape(-1).to(self._sums) * signs)
        return total

    def _empty(self) -> Tensor:
        return torch.zeros(BUCKETS, dtype=self._sums, device=self._device)

    def _hash_of(self, start: int) -> tuple[Tensor, Tensor]:
        if start in self._hashes:
            return self._hashes[start]
        found = self._hashed(torch.arange(start, start + self._block, device=self._device))
        if start < _REMEMBERED:
            self._hashes[start] = found
        return found

    def _hashed(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the buckets and the signs of elements."""
        mixed = (indices & 0x7FFFFFFF).int() ^ ((indices >> 31).int() * _HIGH)
        # The shifts are those of unsigned numbers, which the type does not have.
        mixed = (mixed ^ ((mixed >> 16) & 0xFFFF)) * HASH_FIRST
        mixed = (mixed ^ ((mixed >> 15) & 0x1FFFF)) * _SECOND
        mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
        signs = 1 - 2 * ((mixed >> HASH_SIGN) & 1)
        return mixed & (BUCKETS - 1), signs.to(self._sums)
