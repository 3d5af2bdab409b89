"""Reads the batches that a recording stores: `train.gradscope:step=1200`."""

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gradscope.errors import GradscopeError
from gradscope.recording.records import KeptBatch, Shape
from gradscope.recording.store import load_recording

_ADDRESS = re.compile(r"(?P<file>.+):step=(?P<step>[0-9]+)")


_STEPS_SHOWN = 8


class StoredBatchAddress(NamedTuple):
    """A step of a recording."""

    file: Path
    step: int

    @classmethod
    def of(cls, text: str) -> "StoredBatchAddress | None":
        """Return the address in a text; None if there is none."""
        found = _ADDRESS.fullmatch(text)
        return None if found is None else cls(Path(found["file"]), int(found["step"]))


def read_stored_batch(address: StoredBatchAddress) -> object:
    """Return the batch that a step of a run used: only tensors, numbers, texts and containers.

    Raises:
        GradscopeError: The recording cannot be read, has no batches, or has none of this step.
    """
    stored = load_recording(address.file).kept_batches
    if not stored:
        raise GradscopeError(
            f"`{address.file}` has no stored batches",
            help="record with gradscope run --keep-batches on-trouble",
        )
    found = [one for one in stored if one.step == address.step]
    if not found:
        steps = [str(step) for step in sorted({one.step for one in stored})]
        more = f" and {len(steps) - _STEPS_SHOWN} more" if len(steps) > _STEPS_SHOWN else ""
        raise GradscopeError(
            f"`{address.file}` has no batch of step {address.step}",
            help=f"it has those of steps {', '.join(steps[:_STEPS_SHOWN])}{more}",
        )
    return batch_of(found[-1])


def batch_of(stored: KeptBatch) -> object:
    """Return a stored batch.

    Raises:
        GradscopeError: It is damaged.
    """
    try:
        tensors = [
            _tensor(shape, values)
            for shape, values in zip(stored.shapes, stored.tensors, strict=True)
        ]
        return _value(json.loads(stored.structure), tensors)
    except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as error:
        raise GradscopeError(
            f"the stored batch of step {stored.step} is damaged", cause=str(error)
        ) from None


def _tensor(shape: Shape, values: bytes) -> torch.Tensor:
    dtype = getattr(torch, shape.dtype, None)
    if not isinstance(dtype, torch.dtype) or len(values) != math.prod(shape.dims) * dtype.itemsize:
        raise ValueError(f"{len(values)} bytes are no {shape.dtype}{list(shape.dims)}")
    # `frombuffer` refuses an empty buffer.
    if not values:
        return torch.empty(shape.dims, dtype=dtype)
    # A copy, because memory of `bytes` must not be written to.
    return torch.frombuffer(bytearray(values), dtype=dtype).reshape(shape.dims)


def _value(node: Any, tensors: list[torch.Tensor]) -> object:  # noqa: ANN401 - what JSON holds
    match node:
        case ["tensor", int(index)]:
            return tensors[index]
        case ["list", [*items]]:
            return [_value(one, tensors) for one in items]
        case ["tuple", [*items]]:
            return tuple(_value(one, tensors) for one in items)
        case ["dict", [*items]]:
            return {name: _value(one, tensors) for name, one in items}
        case ["value", value]:
            return value
        case _:
            raise ValueError(f"unknown part {node!r:.60}")
