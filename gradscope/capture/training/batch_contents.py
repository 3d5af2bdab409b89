"""The tensors of a batch that a script got: what they hold, and a copy of them."""

import ctypes
import hashlib
import json
import math
from collections import UserDict
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.naming import shape_of
from gradscope.capture.reading import whole
from gradscope.capture.step.graph import tensors
from gradscope.capture.training.guard import without_dispatch_modes
from gradscope.frozen import dataclass
from gradscope.recording.records import KeptBatch, Shape

_AT_ONCE = 2**20
"""Number of elements that are read together: memory for more is not needed."""

_DIGITS = 8
"""Hexadecimal digits of a digest."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the tensors of a batch hold."""

    shapes: tuple[Shape, ...]
    elements: int
    nan: int
    infinite: int
    lowest: float | None
    highest: float | None
    digest: str


class BatchContents:
    """The tensors of a batch, as the script got it.

    Args:
        batch: The batch.
        is_stored: Whether it may be copied: its containers are then remembered too.
    """

    __slots__ = ("_structure", "_versions", "is_scarce", "size", "tensors")

    def __init__(self, batch: object, *, is_stored: bool) -> None:
        # Modes and subclasses of the script would see the reads below.
        self.size, self.is_scarce = 0, False
        with DisableTorchFunction():
            self.tensors = found = _tensors(batch)
            self._versions = [_version(one) for one in found]
            for one in found:
                try:
                    self.size += one.nbytes
                    # Memory of a device, and memory that a worker process shares: the latter may
                    # have a small limit, and holds a file open.
                    self.is_scarce |= not one.is_cpu or one.untyped_storage().is_shared()
                except (RuntimeError, NotImplementedError):  # without memory of its own
                    self.is_scarce |= not one.is_cpu
            self._structure = _known_structure(batch, list(self.tensors)) if is_stored else None

    def release(self) -> None:
        """Let go of the tensors."""
        self.tensors = ()

    def read(self) -> Held | None:
        """Return what the tensors hold; None if the script has changed them, or one is unreadable.

        It waits for the device of the tensors.
        """
        found = self._readable()
        if found is None:
            return None
        with DisableTorchFunction(), without_dispatch_modes(), torch.no_grad():
            floating = [one for one in found if one.is_floating_point() or one.is_complex()]
            held = [_Range.of(one) for one in floating or found]
            # Not `hash`, because recordings of different processes are compared.
            digest = hashlib.blake2b(digest_size=_DIGITS // 2)
            for one in found:
                for part in _parts(one):
                    digest.update(_memory(part))
        return Held(
            shapes=tuple(map(shape_of, found)),
            elements=sum(one.elements for one in held),
            nan=sum(one.nan for one in held),
            infinite=sum(one.infinite for one in held),
            lowest=min((one.lowest for one in held if one.lowest is not None), default=None),
            highest=max((one.highest for one in held if one.highest is not None), default=None),
            digest=digest.hexdigest(),
        )

    def copied(self, step: int, loader: str) -> KeptBatch | None:
        """Return a copy of the batch; None if the script has changed it, or it is unreadable."""
        found = self._readable()
        if found is None or self._structure is None:
            return None
        with DisableTorchFunction(), without_dispatch_modes(), torch.no_grad():
            return KeptBatch(
                step=step,
                loader=loader,
                structure=json.dumps(self._structure),
                shapes=tuple(map(shape_of, found)),
                tensors=tuple(b"".join(map(_memory, _parts(one))) for one in found),
            )

    def _readable(self) -> list[Tensor] | None:
        with DisableTorchFunction():
            # Scripts write to batches in place, for example to normalize or to mask them.
            if not self.tensors or [*map(_version, self.tensors)] != self._versions:
                return None
            found = [whole(one) for one in self.tensors]
        readable = [one for one in found if one is not None]
        return readable if len(readable) == len(found) else None


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers of a tensor."""

    elements: int
    nan: int
    infinite: int
    lowest: float | None
    highest: float | None

    @classmethod
    def of(cls, tensor: Tensor) -> "_Range":
        nan = infinite = 0
        lowest, highest = math.inf, -math.inf
        for part in _parts(tensor):
            values = torch.view_as_real(part) if part.is_complex() else part
            values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
            is_nan, is_infinite = values.isnan(), values.isinf()
            nan += int(is_nan.sum())
            infinite += int(is_infinite.sum())
            finite = values[~(is_nan | is_infinite)]
            if finite.numel():
                lowest = min(lowest, float(finite.min()))
                highest = max(highest, float(finite.max()))
        is_empty = lowest > highest
        return cls(
            elements=tensor.numel() * (2 if tensor.is_complex() else 1),
            nan=nan,
            infinite=infinite,
            lowest=None if is_empty else lowest,
            highest=None if is_empty else highest,
        )


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the elements of a tensor in order, in contiguous pieces."""
    flat = tensor.resolve_conj().resolve_neg().reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        yield flat[start : start + _AT_ONCE]


def _memory(tensor: Tensor) -> bytes:
    """Return the bytes of a contiguous tensor; `Tensor.numpy` would need numpy."""
    values = tensor.cpu().contiguous()
    return ctypes.string_at(values.data_ptr(), values.nbytes) if values.numel() else b""


def _tensors(batch: object) -> tuple[Tensor, ...]:
    """Return the tensors in a batch. It runs for every batch: most are a few tensors together."""
    kind = type(batch)
    if kind is Tensor:
        return (batch,)  # type: ignore[return-value]
    if kind is list or kind is tuple:
        found: tuple[Any, ...] = tuple(batch)  # type: ignore[arg-type]
        if all([type(one) is Tensor for one in found]):  # noqa: C419 - a list is faster
            return found
    return tuple(tensors(batch))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _known_structure(batch: object, found: list[Tensor]) -> list[object] | None:
    """Return the containers of a batch; None if they contain themselves, or have odd methods."""
    try:
        return _structure(batch, found)
    except Exception:  # noqa: BLE001 - the containers may be classes of the script's
        return None


def _structure(value: object, found: list[Tensor]) -> list[object]:
    """Return the containers of a batch, as `KeptBatch` describes them."""
    if isinstance(value, Tensor):
        return ["tensor", next(index for index, one in enumerate(found) if one is value)]
    if isinstance(value, tuple | list):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_structure(one, found) for one in value]]
    if isinstance(value, Mapping | UserDict):
        return ["dict", [[str(key), _structure(one, found)] for key, one in value.items()]]
    if is_dataclass(value) and not isinstance(value, type):
        named = ((one.name, getattr(value, one.name, None)) for one in fields(value))
        return ["dict", [[name, _structure(one, found)] for name, one in named]]
    return ["value", value if isinstance(value, bool | int | float | str) else None]
