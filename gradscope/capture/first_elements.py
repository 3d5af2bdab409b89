"""Reads the first elements of tensors at the cost of a comparison.

Such reads run in every step, between code of torch that empties the processor's caches: each
property of a tensor, and each function, takes a fifth of a microsecond or more.
"""

from ctypes import Array, c_char

import torch
from torch import Tensor
from torch.nn import Parameter

from gradscope.capture.reading import CALCULABLE, is_in_memory


class FirstElements:
    """The first elements of a small part of the training's state, which are read in every step.

    They are the bytes of a contiguous tensor or parameter of torch's own class, of a type in
    `CALCULABLE` and in main memory. A read calls no operation of torch. The object keeps the
    address, but neither the tensor nor its memory: it looks again where they are.

    Args:
        tensor: The tensor that will be read.
        most: Maximum number of elements.
    """

    __slots__ = ("_address", "_at_address", "_dtype", "_nbytes", "count", "size")

    def __init__(self, tensor: Tensor, most: int) -> None:
        self._dtype, self._nbytes = tensor.dtype, tensor.numel() * tensor.itemsize
        self.count = min(tensor.numel(), most)
        self.size = self.count * tensor.itemsize
        """Number of bytes."""
        self._address = -1
        self._at_address: Array[c_char] | None = None

    def read(self, tensor: object) -> bytes | None:
        """Return the bytes of the elements; None if they cannot be read, or not any more.

        Args:
            tensor: The tensor, or what is left of it.
        """
        if type(tensor) is not Parameter and type(tensor) is not Tensor:
            return None
        try:
            # Functional tensors and those of transforms of `torch.func` raise here.
            address = tensor.data_ptr()
        except RuntimeError:  # without elements of its own
            return None
        # Memory that is resized moves before the old one is freed. A tensor that got other memory
        # meanwhile may lie at the same address: its size shows that, or that it is not contiguous.
        if address != self._address or tensor.nbytes != self._nbytes or not tensor.is_contiguous():
            self._at_address = memory_of(tensor, self._dtype, self.size)
            self._address = -1 if self._at_address is None else address
        memory = self._at_address
        return None if memory is None else memory.raw

    def numbers(self, values: bytes) -> list[float]:
        """Return the elements from their bytes."""
        # `frombuffer` warns of `bytes`, because a write to them is undefined.
        found: list[float] = torch.frombuffer(bytearray(values), dtype=self._dtype).tolist()
        return found

    def limits(self, values: bytearray) -> tuple[list[float], list[float]]:
        """Return the least and the largest of each element, from the bytes of several reads."""
        rows = torch.frombuffer(values, dtype=self._dtype).view(-1, self.count)
        return rows.amin(0).tolist(), rows.amax(0).tolist()


def memory_of(tensor: Tensor, dtype: torch.dtype, size: int) -> Array[c_char] | None:
    """Return the first bytes of a tensor as they are whenever they are read.

    They are freed with the tensor's memory. None if they are not of a contiguous tensor of a type
    in `CALCULABLE` in main memory. torch functions must be disabled.

    Args:
        tensor: A tensor or parameter of torch's own class.
        dtype: The type that it must have.
        size: Number of bytes.
    """
    if not tensor.is_cpu or tensor.dtype is not dtype or dtype not in CALCULABLE:
        return None
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_neg():
        return None
    if not tensor.is_contiguous() or size > tensor.nbytes:
        return None
    try:
        # Functional tensors and those of transforms of `torch.func` raise here.
        address = tensor.data_ptr()
    except RuntimeError:  # without elements of its own
        return None
    if not address or not is_in_memory(tensor):
        return None
    return (c_char * size).from_address(address)
