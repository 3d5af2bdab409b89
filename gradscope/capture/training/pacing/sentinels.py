"""Checks single numbers of each repeated step: its loss, a gradient and a weight.

A repeated step is only compared call by call. These numbers show that it goes as the step that it
repeats.
"""

import math
from collections.abc import Iterable
from ctypes import Array, c_char
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from sys import byteorder
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C import (
    DisableTorchFunction,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)

from gradscope.capture.first_elements import memory_of
from gradscope.capture.reading import is_plain, only_number
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.steps.measurements import Measured

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_FIRST_LAYERS = 4

_SMALLEST, _SMALL, _LARGEST = 16, 64, 4_096
"""Number of elements of the gradient checked in each step. It has at most the first number if one
of the first layers' gradients has, otherwise at most the next."""


_MOST_ADDRESSES = 64

_TOP_BYTES = {
    torch.float32: slice(3, None, 4),
    torch.bfloat16: slice(1, None, 2),
    torch.float64: slice(7, None, 8),
}
"""Where the sign and the upper seven bits of the exponent are in the bytes of elements."""


class Sentinels:
    """One gradient per optimizer, and one weight, that are checked in each repeated step."""

    def __init__(self) -> None:
        self.gradients: dict[int, CheckedGradient] = {}
        """By optimizer: a gradient that shows whether all are finite."""
        self._moving: _Moving | None = None

    def watch_gradient(self, index: int, measured: Iterable[Measured]) -> None:
        """Choose the gradient to check in each repeated step of an optimizer.

        Non-finite values in a backward propagate to the first layers, so these are preferred.
        """
        read = (
            ((one.numel > _SMALLEST) + (one.numel > _SMALL), order, one.entry.parameter)
            for order, one in enumerate(measured)
            if one.gradient
            and one.numel <= _LARGEST
            and (parameter := one.entry.parameter()) is not None
            and _is_readable(parameter.grad)
        )
        first = list(islice(read, _FIRST_LAYERS))
        _, _, found = min(first, default=(0, 0, None))
        parameter = None if found is None else found()
        if found is None or parameter is None:
            self.gradients.pop(index, None)
        elif (known := self.gradients.get(index)) is None or known.parameter is not found:
            self.gradients[index] = CheckedGradient(found, parameter)

    def watch_weight(self, parameter: Tensor) -> None:
        """Check a parameter in order to detect manual changes of the weights."""
        # `p.data -= …` writes through an alias that has a version counter of its own.
        before, now = (
            self._moving,
            _Moving(WeakTensor(parameter), parameter._version, _total(parameter)),
        )
        same = before is not None and before.parameter() is parameter
        now.is_silent = same and before is not None and before.version == now.version
        self._moving = now

    def has_moved(self) -> bool:
        """Return whether the script has changed its weights since the last call."""
        moving = self._moving
        parameter = None if moving is None else moving.parameter()
        if moving is None or parameter is None:
            return False
        if not moving.is_silent:
            before, moving.version = moving.version, parameter._version
            return before != moving.version
        # The version does not show changes through `.data`: the sum of the elements does.
        total, moving.total = moving.total, _total(parameter)
        return total != moving.total


class CheckedGradient:
    """A gradient that is checked in each repeated step.

    Args:
        reference: Its parameter, as referenced elsewhere.
        parameter: Its parameter.
    """

    __slots__ = ("_count", "_dtype", "_memory", "_nbytes", "_top_bytes", "parameter")

    def __init__(self, reference: WeakTensor[Tensor], parameter: Tensor) -> None:
        self.parameter = reference
        self._count, self._dtype = parameter.numel(), parameter.dtype
        self._nbytes = self._count * parameter.itemsize
        self._top_bytes = _TOP_BYTES.get(self._dtype) if byteorder == "little" else None
        self._memory: dict[int, Array[c_char]] = {}
        """By address: each backward may make the gradient anew, at one of few addresses."""

    def is_finite(self) -> bool:
        """Return whether it is finite, without a call of torch if all its elements are moderate.

        The caller disables torch functions.
        """
        parameter = self.parameter()
        gradient = None if parameter is None else parameter.grad
        if self._top_bytes is None or type(gradient) is not Tensor:
            return self._has_finite_sum(gradient)
        try:
            # The address decides: allocators hand out the same few blocks step after step.
            memory = self._memory.get(gradient.data_ptr())
        except RuntimeError:  # sparse, or otherwise without elements of its own
            return self._has_finite_sum(gradient)
        if memory is None:
            memory = self._read(gradient)
        elif gradient.nbytes != self._nbytes or not gradient.is_contiguous():
            memory = None
        if memory is not None:
            top = memory.raw[self._top_bytes]
            # Those of values that are not finite, and of some that are very large.
            if 0x7F not in top and 0xFF not in top:
                return True
        return self._has_finite_sum(gradient)

    def _read(self, gradient: Tensor) -> Array[c_char] | None:
        if gradient.numel() != self._count:
            return None
        found = memory_of(gradient, self._dtype, gradient.nbytes)
        if found is not None:
            # Another allocator may never repeat an address.
            if len(self._memory) == _MOST_ADDRESSES:
                self._memory.clear()
            self._memory[gradient.data_ptr()] = found
        return found

    @staticmethod
    def _has_finite_sum(gradient: Tensor | None) -> bool:
        # A dispatch mode of the script gets every operation, reads included.
        if _len_torch_dispatch_stack():
            return True
        return _is_readable(gradient) and math.isfinite(gradient.sum().item())


@dataclass(slots=True)
class _Moving:
    """A parameter that the script itself changes in each step."""

    parameter: WeakTensor[Tensor]
    version: int
    total: float
    """Sum of its elements."""
    is_silent: bool = False
    """Whether its version does not change, as with `p.data -= …`."""


def _total(parameter: Tensor) -> float:
    """Return the sum of a parameter's elements, 0 if they are unreadable."""
    with DisableTorchFunction(), torch.no_grad():
        return float(parameter.sum()) if is_plain(parameter) else 0.0


def _is_readable(gradient: object) -> "TypeIs[Tensor]":
    """Return whether a gradient in main memory can be summed without side effects."""
    if type(gradient) is not Tensor or not gradient.is_cpu or gradient.requires_grad:
        return False
    return is_plain(gradient)


def is_broken(number: object) -> bool:
    """Return whether a number in main memory is not finite."""
    value = number if isinstance(number, float) else _read(number)
    return value is not None and not math.isfinite(value)


def loss_of(outputs: object) -> float | None:
    """Return a loss in main memory, NaN if it lies elsewhere; None if it is not finite."""
    loss = outputs[0] if type(outputs) is tuple and len(outputs) == 1 else None
    if type(loss) is not Tensor:
        return None
    # Most scripts have no mode: one call less.
    is_seen = _len_torch_function_stack() or _len_torch_dispatch_stack()
    value = _read(loss) if is_seen else only_number(loss)
    if value is None:
        return None if loss.device.type in ("cpu", "meta") else math.nan
    return value if isfinite(value) else None


def _read(number: object) -> float | None:
    """Return the only number of a tensor in main memory; None if the script would notice."""
    if type(number) is not Tensor or _len_torch_dispatch_stack():
        return None
    if not _len_torch_function_stack():
        return only_number(number)
    with DisableTorchFunction():
        return only_number(number)
