"""Checks single numbers of each repeated step: its loss, a gradient and a weight.

A repeated step is only compared call by call. These numbers show that it goes as the step that it
repeats.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack

from gradscope.capture.reading import few_numbers, is_plain
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.steps.writer import Measured

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_FIRST_LAYERS = 4

_SMALLEST, _SMALL, _LARGEST = 16, 64, 4_096
"""Number of elements of the gradient checked in each step. It has at most the first number if one
of the first layers' gradients has, otherwise at most the next."""


class Sentinels:
    """One gradient per optimizer, and one weight, that are checked in each repeated step."""

    def __init__(self) -> None:
        self._gradients: dict[int, WeakTensor[Tensor]] = {}
        """By optimizer: a parameter whose gradient shows whether all are finite."""
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
        if found is None:
            self._gradients.pop(index, None)
        else:
            self._gradients[index] = found

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

    def is_finite(self, index: int) -> bool:
        """Return whether the checked gradient of an optimizer is finite, as far as is known."""
        reference = self._gradients.get(index)
        if reference is None:
            return True
        parameter = reference()
        gradient = None if parameter is None else parameter.grad
        # A dispatch mode of the script gets every operation, reads included.
        if _len_torch_dispatch_stack():  # the script would see it
            return True
        with DisableTorchFunction():
            if gradient is not None and not gradient.requires_grad:
                few = few_numbers(gradient, _SMALL)
                if few is not None:
                    return math.isfinite(sum(few))
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
    loss = outputs[0] if isinstance(outputs, tuple | list) and len(outputs) == 1 else None
    value = _read(loss)
    if value is None:
        is_far = type(loss) is Tensor and loss.device.type not in ("cpu", "meta")
        return math.nan if is_far else None
    return value if math.isfinite(value) else None


def _read(number: object) -> float | None:
    """Return the only number of a tensor in main memory; None if the script would notice."""
    if type(number) is not Tensor or _len_torch_dispatch_stack():
        return None
    with DisableTorchFunction():
        found = few_numbers(number, 1)
    return None if found is None else found[0]
