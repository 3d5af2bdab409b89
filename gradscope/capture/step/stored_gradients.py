"""Stores gradients to compare runs, and detects those that a script keeps without a copy."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.arithmetic import to_host
from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import NotReadable, stored
from gradscope.capture.source.lines import Line
from gradscope.recording.stored_gradient import (
    BUCKETS,
    HASH_FIRST,
    HASH_HIGH,
    HASH_SECOND,
    HASH_SIGN,
    PART_ELEMENTS,
    KeepMode,
    StoredForm,
    StoredGradient,
    StoredPart,
)

_BLOCK = 1 << 16
"""Number of elements hashed at a time on a CPU. Their indices fit its cache."""

_DEVICE_BLOCK = 1 << 20

_REMEMBERED = 1 << 20
"""Number of indices whose hashes are cached: nearly all elements of most models."""

_SECOND, _HIGH = HASH_SECOND - (1 << 32), HASH_HIGH - (1 << 32)
"""As signed numbers with the same bits: torch has few operations on unsigned ones."""


_MOST_SEARCHES = 8
"""Maximum number of searches per observer: each takes a pass over all objects."""
_OWN_REFERENCES = 3
"""References to a gradient that nobody else holds, while it is counted."""


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
        # Whole rows at a time, as an embedding's gradient may have few rows of many millions.
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
        # Hashes of all blocks of a large model would take more memory than its gradients.
        if start < _REMEMBERED:
            self._hashes[start] = found
        return found

    def _hashed(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the buckets and the signs of elements."""
        # In two parts: the conversion of an index that int32 does not hold is undefined.
        mixed = (indices & 0x7FFFFFFF).int() ^ ((indices >> 31).int() * _HIGH)
        # The shifts are those of unsigned numbers, which the type does not have.
        mixed = (mixed ^ ((mixed >> 16) & 0xFFFF)) * HASH_FIRST
        mixed = (mixed ^ ((mixed >> 15) & 0x1FFFF)) * _SECOND
        mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
        signs = 1 - 2 * ((mixed >> HASH_SIGN) & 1)
        return mixed & (BUCKETS - 1), signs.to(self._sums)


_TOGETHER = 1 << 16
"""Maximum number of elements of gradients that are copied from an accelerator together."""

UNREADABLE = "they are unreadable, and are not stored"
"""Why a gradient was not stored."""

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass(slots=True)
class Kept:
    """A stored gradient. The caller knows its step and parameter."""

    form: StoredForm
    shape: tuple[int, ...]
    dtype: str
    parts: tuple[StoredPart, ...]

    def of(self, step: int, parameter: int) -> StoredGradient:
        """Return its record."""
        return StoredGradient(
            step=step,
            parameter=parameter,
            form=self.form,
            shape=self.shape,
            dtype=self.dtype,
            parts=self.parts,
        )


@dataclass(slots=True)
class _Held:
    """The elements of a gradient before they are written."""

    form: StoredForm
    shape: torch.Size
    dtype: torch.dtype
    values: Tensor
    """Real and one-dimensional; `[rows, elements of a row]` for sparse gradients."""
    rows: Tensor | None = None


def keep(gradients: Sequence[Tensor], mode: KeepMode, *, scale: float = 1.0) -> list[Kept | None]:
    """Store gradients as they are now; None stands for unreadable ones.

    Args:
        gradients: Gradients of parameters.
        mode: Whether to store all elements, or a sketch of large gradients.
        scale: Loss scale to divide by.
    """
    sketchers: dict[torch.device, Sketcher] = {}
    with DisableTorchFunction(), torch.no_grad():
        held = [_held(gradient, mode, sketchers) for gradient in gradients]
        _bring_together([one for one in held if one is not None])
        return [None if one is None else _written(one, scale) for one in held]


def _held(
    gradient: Tensor, mode: KeepMode, sketchers: dict[torch.device, Sketcher]
) -> _Held | None:
    try:
        part = stored(gradient)
    except NotReadable:
        return None
    if part.is_nested:
        return None  # it has no shape of its own
    is_whole = mode == "exact" or part.numel() * (1 + part.is_complex()) <= BUCKETS
    # COO indices are the same for all compressed layouts.
    if part.layout in _COMPRESSED:
        part = part.to_sparse_coo()
    is_sparse = part.layout is torch.sparse_coo
    one = _held_sparse(part.coalesce()) if is_sparse else _held_dense(part)
    return one if is_whole else _sketched(one, sketchers)


def _sketched(one: _Held, sketchers: dict[torch.device, Sketcher]) -> _Held:
    device = one.values.device
    sketcher = sketchers.get(device) or sketchers.setdefault(device, Sketcher(device))
    if one.rows is None:
        buckets = sketcher.sketch(one.values)
    else:
        buckets = sketcher.sketch_rows(one.rows, one.values)
    return _Held("sketch", one.shape, one.dtype, buckets)


def _held_dense(stored: Tensor) -> _Held:
    dense = stored if stored.layout is torch.strided else stored.to_dense()
    return _Held("exact", dense.shape, dense.dtype, _real(dense).reshape(-1))


def _held_sparse(stored: Tensor) -> _Held:
    """Return a sparse gradient with its rows."""
    rows = torch.zeros_like(stored.indices()[0])
    for size, index in zip(stored.shape, stored.indices(), strict=False):
        rows = rows * size + index
    values = _real(stored.values())
    length = values[0].numel() if len(values) else 0
    return _Held("sparse", stored.shape, stored.dtype, values.reshape(len(values), length), rows)


def _real(values: Tensor) -> Tensor:
    if values.is_complex():
        # A conjugate or negative view has other bits than its memory.
        return torch.view_as_real(values.resolve_conj().resolve_neg())
    return values.resolve_neg()


def _bring_together(held: list[_Held]) -> None:
    """Copy small gradients from an accelerator to main memory, in one transfer."""
    far = [one for one in held if not one.values.is_cpu and one.values.numel() <= _TOGETHER]
    for one, values in zip(far, to_host([one.values for one in far]), strict=True):
        one.values = values.reshape(one.values.shape)


def _written(one: _Held, scale: float) -> Kept:
    name = str(one.dtype).removeprefix("torch.")
    return Kept(one.form, tuple(one.shape), name, tuple(_parts(one, scale)))


def _parts(one: _Held, scale: float) -> Iterator[StoredPart]:
    # Half types too: a gradient divided by the loss scale may be too small for them.
    kind = torch.float64 if one.dtype in (torch.float64, torch.complex128) else torch.float32
    if one.rows is None:
        for values in one.values.split(PART_ELEMENTS) if one.values.numel() else ():
            yield StoredPart(_bytes(values, kind, scale))
        return
    at_once = max(1, PART_ELEMENTS // max(1, one.values.shape[1]))
    rows = one.rows.cpu().split(at_once) if len(one.rows) else ()
    for positions, values in zip(rows, one.values.split(at_once), strict=False):
        yield StoredPart(_bytes(values, kind, scale), _memory(positions))


def _bytes(values: Tensor, kind: torch.dtype, scale: float) -> bytes:
    values = values.cpu().to(kind)
    return _memory(values if scale == 1 else values / scale)


def _memory(values: Tensor) -> bytes:
    """Return the bytes of a tensor in main memory; `Tensor.numpy` would need numpy."""
    dense = values.contiguous()
    return ctypes.string_at(dense.data_ptr(), dense.numel() * dense.element_size())


class KeptGradientObserver(Observer):
    """Compares the collections of gradients before and after a backward.

    Each collection is a list or a dict of the script's. If one that was filled before a backward
    holds the same tensor as one that was filled after it, both hold what the last backward wrote.
    """

    names = frozenset(
        {
            *("add", "cat", "clone", "div", "dot", "flatten", "inner", "mean", "mul", "norm"),
            *("ravel", "reshape", "stack", "sub", "sum", "view", "view_as", "__rmul__"),
        }
    )

    def __init__(self) -> None:
        self.found: dict[Line, int] = {}
        """By line that uses a collection: number of collections with the same gradient."""
        self._gradient = 0
        """`id` of the gradient that is compared; 0 before the first backward."""
        self._first: set[int] | None = None
        """Collections that held it before the first backward, by `id`."""
        self._earlier: set[int] = set()
        """Collections filled since, before the last backward."""
        self._is_written = False
        self._searches = 0

    def before_backward(self, gradient: Tensor | None) -> None:
        """Search the collections that hold a parameter's gradient."""
        self._is_written = False
        if gradient is None or self._searches == _MOST_SEARCHES:
            self._gradient = 0
            self._first = self._first or set()
            return
        # Counting references is immediate; searching for them visits every object of the process.
        is_held = sys.getrefcount(gradient) > _OWN_REFERENCES
        holders = self._collections(gradient) if is_held else set()
        if self._first is None:
            self._first = holders
        elif self._gradient not in (0, id(gradient)):
            self._earlier = set()
        self._gradient = id(gradient)
        self._earlier = (self._earlier & holders) | (holders - self._first)

    def after_backward(self, gradient: Tensor | None) -> None:
        """Record whether the backward has written to the same tensor."""
        self._is_written = bool(self._earlier) and id(gradient) == self._gradient

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call uses the gradient that is compared."""
        if not self._is_written or not args or self._searches == _MOST_SEARCHES:
            return False
        first = args[0]
        given = first if isinstance(first, list | tuple) else args[:2]
        return any(id(one) == self._gradient for one in given)

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call that uses the gradient while an earlier and a later collection hold it."""
        first = args[0]
        given = first if isinstance(first, list | tuple) else args[:2]
        gradient = next(one for one in given if id(one) == self._gradient)
        holders = self._collections(gradient)
        # The list that the call itself was given may be a temporary one.
        holders.discard(id(first))
        if line is not None and holders & self._earlier and holders - self._earlier:
            later = holders - (self._first or set())
            self.found[line] = max(len(later), self.found.get(line, 0))

    def _collections(self, gradient: object) -> set[int]:
        """Return the lists, and dicts of tensors, of which a tensor is an item, by `id`."""
        self._searches += 1
        return {id(one) for one in gc.get_referrers(gradient) if _is_collection(one)}

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()
        self._earlier, self._is_written, self._gradient = set(), False, 0


def _is_collection(holder: object) -> bool:
    if type(holder) is dict:  # and not the variables of a module or an object
        return len(holder) > 1 and all(
            one is None or isinstance(one, Tensor) for one in holder.values()
        )
    return type(holder) is list


def first_gradient(parameters: Iterable[Callable[[], Tensor | None]]) -> Tensor | None:
    """Return the gradient of the first parameter that has one."""
    for reference in parameters:
        parameter = reference()
        if parameter is not None and parameter.grad is not None:
            return parameter.grad
    return None
