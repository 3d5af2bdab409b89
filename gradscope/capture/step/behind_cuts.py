"""Follows what lies behind cuts: numbers that were read, and tensors in the same memory."""

import math
import sys
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, writes_in_place
from gradscope.capture.step.graph import tensors
from gradscope.capture.tensor_references import TensorNotes, WeakTensor

ARRAYS = frozenset({"__array__", "numpy"})
"""Calls that return an array of numpy."""

_FACTORIES = frozenset({"as_tensor", "tensor"})
"""Calls that make a tensor of a number."""

_MOST_NUMBERS = 64

SHARING = frozenset({"data", "detach"})
"""Calls that return a tensor without history in the memory of the given one."""

_OPERATORS = frozenset({"__iadd__", "__imul__", "__isub__", "__itruediv__", "__setitem__"})


class PlainNumbers:
    """The last plain numbers that were read, and their sums, by their values."""

    def __init__(self) -> None:
        self._origins: dict[float, frozenset[int]] = {}
        """What is before a number, or before all numbers of a sum."""
        self._totals: dict[frozenset[int], float] = {}
        """Sums of all numbers with the same before them."""

    def note(self, number: object, origins: frozenset[int]) -> None:
        """Note numbers that were read, unless they are round ones, as others are too."""
        if isinstance(number, list):
            for one in _ends(number):
                self._keep(one, origins)
        if type(number) is not float:
            return
        total = self._totals[origins] = self._totals.get(origins, 0.0) + number
        for one in {number, total}:
            self._keep(one, origins)

    def _keep(self, number: float, origins: frozenset[int]) -> None:
        # A float32 has more digits as a Python float; a number that someone wrote has fewer.
        if math.isfinite(number) and number != float(f"{number:.7e}"):
            # Popped first: a dict keeps the position of a known key, and the oldest are dropped.
            self._origins.pop(number, None)
            self._origins[number] = origins
        while len(self._origins) > _MOST_NUMBERS:
            del self._origins[next(iter(self._origins))]

    def within(self, name: str, given: Args) -> frozenset[int]:
        """Return what is before the numbers of the lists that a call makes a tensor of."""
        if not self._origins or name not in _FACTORIES or not given:
            return frozenset()
        found = [self._origins.get(one) for one in _ends(given[0])]
        return frozenset().union(*(origins for origins in found if origins))

    def before(self, given: Args) -> frozenset[int]:
        """Return what is before the numbers among some arguments, also before a plain weight."""
        found = frozenset[int]()
        for number in (item for item in given if type(item) is float):
            for known, origins in self._origins.items():
                weight = number / known
                # A weight as 0.1 has few digits; the ratio of unrelated numbers has many.
                if weight and math.isclose(weight, float(f"{weight:.2e}"), rel_tol=1e-12):
                    found |= origins
        return found

    def clear(self) -> None:
        """Forget all numbers."""
        self._origins.clear()
        self._totals.clear()


class NumpyNumbers:
    """Knows numbers by the function call that computed them: numpy cannot be observed.

    A number of numpy counts as computed from the arrays that the same call of a function had read
    from tensors before. Tensors of one element that are made of it are followed. The frame of a
    call is sought for the few calls that matter alone: that walks the stack.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[int, CodeType], frozenset[int]] = {}
        """By frame: what is before the arrays that it read."""
        self._made = TensorNotes[frozenset[int]]()
        """What is before the number that a tensor was made of."""

    def read(self, name: str, origins: frozenset[int]) -> None:
        """Note what is before an array that a frame reads."""
        frame = frame_of_call() if name in ARRAYS and origins else None
        if frame is not None:
            # With the code, because a later frame may get the `id` of this one.
            key = (id(frame), frame.f_code)
            self._read[key] = self._read.get(key, frozenset()) | origins

    def make(self, name: str, given: object, returned: Iterable[Tensor]) -> None:
        """Note tensors that a call returns for such a number, or for a tensor made of one."""
        if not self._read:
            return
        origins = self._of_tensors(given)
        if name in _FACTORIES:
            origins |= self._of_numbers(given)
        for tensor in returned if origins else ():
            if tensor.numel() == 1:
                self._made.keep(tensor, origins)

    def before(self, given: object) -> frozenset[int]:
        """Return what is before the numbers among some arguments."""
        if not self._read:
            return frozenset()
        return self._of_tensors(given) | self._of_numbers(given)

    def clear(self) -> None:
        """Release every tensor."""
        self._read.clear()
        self._made.clear()

    def _of_numbers(self, given: object) -> frozenset[int]:
        if not isinstance(given, tuple) or not any(map(_is_number, given)):
            return frozenset()
        frame = frame_of_call()
        if frame is None:
            return frozenset()
        return self._read.get((id(frame), frame.f_code), frozenset())

    def _of_tensors(self, given: object) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for tensor in tensors(given) if self._made else ():
            found |= self._made.of(tensor) or frozenset()
        return found


def _ends(numbers: object) -> list[float]:
    """Return the first and the last number of nested lists."""
    ends = []
    for end in (0, -1):
        inner = numbers
        while isinstance(inner, list | tuple) and inner:
            inner = inner[end]
        if type(inner) is float and isinstance(numbers, list | tuple):
            ends.append(inner)
    return ends


def _is_number(value: object) -> bool:
    """Return whether a value is a number of numpy, which may be an array without dimensions."""
    if isinstance(value, torch.Tensor) or type(value).__module__ != "numpy":
        return False
    return getattr(value, "shape", None) == () and getattr(value, "dtype", None) is not None


def frame_of_call() -> FrameType | None:
    """Return the frame that called the torch function being observed."""
    frame: FrameType | None = sys._getframe(1)
    # The frame of the mode is between this function and the caller.
    while frame is not None and frame.f_code.co_name != "__torch_function__":
        frame = frame.f_back
    return None if frame is None else frame.f_back


def is_in_place(name: str) -> bool:
    """Return whether a function of this name writes into its first argument."""
    return name in _OPERATORS or writes_in_place(name)


class DetachedMemory:
    """The detached tensors of a forward, and views of them."""

    def __init__(self) -> None:
        self._shared = TensorNotes[WeakTensor[Tensor]]()
        """The tensor whose memory a detached one shares."""

    @property
    def is_known(self) -> bool:
        """Whether there is any."""
        return bool(self._shared)

    def note(self, name: str, args: Args, returned: Sequence[Tensor]) -> None:
        """Note a detached tensor, or a view of one, by the tensor whose memory it shares."""
        if not (self._shared or name in SHARING) or not (args and returned):
            return
        given, result = args[0], returned[0]
        known = self._shared.of(given)
        with DisableTorchFunction():
            if name in SHARING and isinstance(given, Tensor):
                self._shared.keep(result, WeakTensor(given))
            elif known is not None and result._is_view():
                self._shared.keep(result, known)

    def sharing(self, tensor: object) -> Tensor | None:
        """Return the tensor in whose memory a detached one lies, None if it is not known."""
        known = self._shared.of(tensor)
        return None if known is None else known()

    def clear(self) -> None:
        """Release every tensor."""
        self._shared.clear()
