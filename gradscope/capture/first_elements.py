"""Reads the first elements of a tensor at the cost of a comparison."""

from ctypes import Array, c_char

import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.nn import Parameter

from gradscope.capture.reading import CALCULABLE, is_in_memory
from gradscope.capture.tensor_references import WeakTensor


class FirstElements:
    """The first elements of a small part of the training's state, which are read in every step.

    They are the bytes of a contiguous tensor or parameter of torch's own class, of a type in
    `CALCULABLE` and in main memory. A read calls no operation of torch. The object keeps the
    address, but neither the tensor nor its memory: it looks again where they are.

    Args:
        tensor: Any tensor.
        most: Maximum number of elements.
    """

    __slots__ = ("_address", "_at_address", "_dtype", "_tensor", "count", "size")

    def __init__(self, tensor: Tensor, most: int) -> None:
        with DisableTorchFunction():
            self._tensor, self._dtype = WeakTensor(tensor), tensor.dtype
            self.count = min(tensor.numel(), most)
            self.size = self.count * tensor.itemsize
            """Number of bytes."""
        self._address = -1
        self._at_address: Array[c_char] = (c_char * self.size)()

    def read(self) -> bytes | None:
        """Return the bytes of the elements; None if they cannot be read, or not any more."""
        tensor = self._tensor()
        if type(tensor) is not Parameter and type(tensor) is not Tensor:
            return None
        with DisableTorchFunction():
            try:
                # Functional tensors and those of transforms of `torch.func` raise here.
                address = tensor.data_ptr()
            except RuntimeError:  # without elements of its own
                return None
            # Memory that is resized moves before the old one is freed: the same address is the same
            # memory.
            if address != self._address:
                self._address = -1
                if not address or not self._is_readable(tensor):
                    return None
                self._at_address = (c_char * self.size).from_address(address)
                self._address = address
        return self._at_address.raw

    def _is_readable(self, tensor: Tensor) -> bool:
        """Return whether the elements of a tensor with an address are as described."""
        if not tensor.is_cpu or tensor.dtype is not self._dtype:
            return False
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_neg():
            return False
        if self._dtype not in CALCULABLE:
            return False
        return tensor.is_contiguous() and self.size <= tensor.nbytes and is_in_memory(tensor)

    def numbers(self, values: bytes) -> list[float]:
        """Return the elements from their bytes."""
        found: list[float] = torch.frombuffer(bytearray(values), dtype=self._dtype).tolist()
        return found

    def limits(self, values: bytearray) -> tuple[list[float], list[float]]:
        """Return the least and the largest of each element, from the bytes of several reads."""
        rows = torch.frombuffer(values, dtype=self._dtype).view(-1, self.count)
        return rows.amin(0).tolist(), rows.amax(0).tolist()
