"""The one gate to a tensor's memory: whether its elements can be read, and by which tensor.

torch's kernels trust a tensor. To read one whose memory has been freed ends the process, and a
class of its own may answer a read with a collective or with its own code. So nothing of gradscope
reads an element before this module has said that it may. Callers keep torch functions off, as by
`DisableTorchFunction`, where a tensor may be of a class with functions of its own.
"""

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, DispatchKey, _dispatch_keys

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

_OWN_KERNELS = tuple(
    key
    for name in ("CPU", "CUDA", "MPS", "XPU", "HPU", "PrivateUse1")
    if (key := getattr(DispatchKey, name, None)) is not None
)
"""Where a tensor has elements that the kernels of torch, or of an accelerator, read in place."""

_STANDS_FOR_OTHERS = (
    DispatchKey.Python,
    DispatchKey.Functionalize,
    DispatchKey.FuncTorchBatched,
    DispatchKey.FuncTorchGradWrapper,
    DispatchKey.ZeroTensor,
)
"""Marks of tensors that only stand for elements, whatever device they claim."""

_REASONS = (
    (DispatchKey.FuncTorchBatched, "it exists only within a transform of `torch.func`"),
    (DispatchKey.FuncTorchGradWrapper, "it exists only within a transform of `torch.func`"),
    (DispatchKey.Functionalize, "it exists only within a transform of `torch.func`"),
    (DispatchKey.ZeroTensor, "it stands for zeros, and has no memory"),
)

_FREED = "its memory has been freed"

CALCULABLE = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Real types that torch calculates with; others, as those of eight bits, it only converts."""

_NUMBERS = CALCULABLE | {
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
}
"""Types of which `float` or `complex` makes a number."""

_SMALL, _LARGE = 1e-30, 1e38
"""Largest moduli between which single precision is enough."""

_are_in_place: dict[int, bool] = {}
"""By what the dispatcher goes by: whether the elements of such tensors lie in their storage."""


class NotReadable(Exception):  # noqa: N818 - a verdict on a tensor, not a failure
    """The tensor has no elements that could be read; the message says why."""


class Elements(NamedTuple):
    """The elements of a tensor, each stored once."""

    values: Tensor
    """Real and floating, of any shape; the moduli of complex ones."""
    repeats: int
    """How many elements of the tensor share each stored one (expanded dimensions)."""
    numel: int
    """Elements of the tensor, as far as they are here. A sparse layout leaves out zeros: these may
    be more than `values.numel() * repeats`."""


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is strided and its elements can be read right where they are.

    This is asked of every tensor of every step: it costs well under a microsecond.
    """
    known = _are_in_place.get(_dispatch_keys(tensor).raw_repr())
    if known is None:
        known = is_in_place(tensor)
    if not (known and tensor.is_contiguous()):
        return known and is_in_memory(tensor)
    offset = tensor.storage_offset()
    end = tensor.nbytes + (offset and offset * tensor.itemsize)
    return end <= tensor.untyped_storage().nbytes()


def is_plain_float(tensor: Tensor) -> bool:
    """Return the same of a tensor of real numbers that torch calculates with."""
    return tensor.dtype in CALCULABLE and is_plain(tensor)


def is_in_place(tensor: Tensor) -> bool:
    """Return whether torch's own kernels read a tensor in its storage, if that is there."""
    known = _dispatch_keys(tensor).raw_repr()
    try:
        return _are_in_place[known]
    except KeyError:
        has = _dispatch_keys(tensor).has
        found = any(map(has, _OWN_KERNELS)) and not any(map(has, _STANDS_FOR_OTHERS))
        return _are_in_place.setdefault(known, found)


def is_in_memory(tensor: Tensor) -> bool:
    """Return whether the storage reaches as far as a tensor `is_in_place`: it may be freed."""
    there = tensor.untyped_storage().nbytes()
    if tensor.is_contiguous():
        offset = tensor.storage_offset()
        return tensor.nbytes + (offset and offset * tensor.itemsize) <= there
    # A tensor without elements is contiguous.
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in pairs)
    return (last + 1) * tensor.itemsize <= there


def few_numbers(tensor: Tensor, most: int) -> list[float] | None:
    """Return the elements of a small tensor, as it is asked for once a step; None for others.

    That is one of torch's own class and of a type in `CALCULABLE`, dense and in main memory. The
    address tells whether it has memory of its own, in a third of the time that its keys take.

    Args:
        tensor: Any.
        most: Number of elements up to which it is small.
    """
    if type(tensor) is not Tensor or not tensor.is_cpu or tensor.dtype not in CALCULABLE:
        return None
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.numel() > most:
        return None
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # it only stands for elements
        return None
    if not address or not is_in_memory(tensor):
        return None
    found = tensor.tolist()
    return found if tensor.dim() == 1 else _flat(found)


def _flat(nested: float | list[Any]) -> list[float]:
    """Return the numbers in lists of lists."""
    if not isinstance(nested, list):
        return [nested]
    return [number for one in nested for number in _flat(one)]


def stored(tensor: Tensor) -> Tensor:
    """Return a tensor of any layout whose elements torch's own kernels can read.

    Of a distributed one that is the part that is here. Nothing is copied, and nothing is waited
    for.

    Raises:
        NotReadable: The elements cannot be reached, or are no floating-point numbers.
    """
    with DisableTorchFunction():
        while _wraps(tensor):
            tensor = _inner(tensor)
        reason = _why_not(tensor)
        if reason is not None:
            raise NotReadable(reason)
        return tensor.detach()


def why_unreadable(tensor: Tensor) -> str | None:
    """Return why the elements of a tensor cannot be read, None where they can."""
    try:
        stored(tensor)
    except NotReadable as reason:
        return str(reason)
    return None


def whole(tensor: Tensor) -> Tensor | None:
    """Return a tensor that holds all elements of another in place; None where that cannot be read.

    Unlike `stored` it gives no part of a distributed tensor, and takes any type of numbers.
    """
    with DisableTorchFunction():
        while _wraps(tensor):
            placements = getattr(tensor, "placements", ())
            if not all(placement.is_replicate() for placement in placements):
                return None
            try:
                tensor = _inner(tensor)
            except NotReadable:
                return None
        is_known = tensor.dtype in _NUMBERS and is_plain(tensor)
        return tensor.detach() if is_known else None


def has_freed_memory(tensor: Tensor) -> bool:
    """Return whether memory is gone that a tensor, or one that it is made of, lay in."""
    with DisableTorchFunction():
        try:
            while _wraps(tensor):
                tensor = _inner(tensor)
        except NotReadable:
            return False  # it alone knows where its elements are
        return _why_not(tensor, of_any_type=True) == _FREED


def elements(tensor: Tensor) -> Elements:
    """Return the stored elements of a tensor of any layout, without copying where possible.

    Raises:
        NotReadable: The elements cannot be reached, or are no floating-point numbers.
    """
    with DisableTorchFunction():
        part = stored(tensor)
        values = _calculable(_strided(part))
        if values.is_complex():
            values = _moduli(values)
        repeats = 1
        for dim, stride in enumerate(values.stride()):
            if stride == 0 and values.shape[dim] > 1:
                repeats *= values.shape[dim]
                values = values.narrow(dim, 0, 1)
        return Elements(values, repeats, part.numel())


def _wraps(tensor: Tensor) -> bool:
    """Return whether a tensor's class says itself what an operation on it does."""
    return bool(_dispatch_keys(tensor).has(DispatchKey.Python))


def _why_not(tensor: Tensor, *, of_any_type: bool = False) -> str | None:
    """Return why the elements of a tensor cannot be read, whose class is not of its own kind."""
    keys = _dispatch_keys(tensor)
    for key, reason in _REASONS:
        if keys.has(key):
            return reason
    if tensor.is_meta:
        return "a meta tensor has no elements"
    if tensor.is_quantized or not (of_any_type or _has_numbers(tensor.dtype)):
        return f"its elements are {str(tensor.dtype).removeprefix('torch.')}"
    parts = _parts(tensor)
    if parts is None or not all(map(is_in_place, parts)):
        layout = str(tensor.layout).removeprefix("torch.")
        return f"a {layout} tensor on `{tensor.device.type}` is not read"
    # The values of a nested tensor are as many as its memory holds.
    is_cut = tensor.is_nested and parts[0].numel() < tensor.numel()
    return None if all(map(is_in_memory, parts)) and not is_cut else _FREED


def _has_numbers(dtype: torch.dtype) -> bool:
    return (dtype.is_floating_point or dtype.is_complex) and "float4" not in str(dtype)


def _parts(tensor: Tensor) -> tuple[Tensor, ...] | None:
    """Return the strided tensors of which one is made; None if unknown."""
    if tensor.is_nested:
        return (tensor.values(),)
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _COMPRESSED:
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        ends = tensor.crow_indices() if by_row else tensor.ccol_indices()
        return ends, tensor.col_indices() if by_row else tensor.row_indices(), tensor.values()
    return () if tensor.is_mkldnn and tensor.is_cpu else None


def _inner(tensor: Tensor) -> Tensor:
    """Return the tensor in which one of a class of its own holds its elements, or some of them.

    Raises:
        NotReadable: It holds none, or they are still on their way here.
    """
    kind = type(tensor)
    if kind is _class("torch.distributed._functional_collectives", "AsyncCollectiveTensor"):
        if not tensor.completed:  # type: ignore[attr-defined]
            raise NotReadable("another rank has not sent it yet")
        return tensor.elem  # type: ignore[attr-defined,no-any-return]
    distributed = _class("torch.distributed.tensor", "DTensor")
    if distributed is not None and issubclass(kind, distributed):
        return tensor._local_tensor  # type: ignore[attr-defined,no-any-return]
    if kind is _class("torch.nested._internal.nested_tensor", "NestedTensor"):
        return tensor._values  # type: ignore[return-value]
    raise NotReadable(f"a `{kind.__name__}` does not show its elements")


def _class(module: str, name: str) -> type | None:
    """Return a class of torch's, None where nobody has imported it: that costs seconds."""
    return getattr(sys.modules.get(module), name, None)


def _calculable(values: Tensor) -> Tensor:
    """Return values as a type that torch calculates with."""
    if values.dtype is torch.complex32:
        return values.to(torch.complex64)
    if values.is_complex() or values.dtype in CALCULABLE:
        return values
    return values.to(torch.float32)


def _moduli(values: Tensor) -> Tensor:
    moduli = values.abs()
    # At either end of the range the modulus overflows, or is rounded off, where its parts are not.
    if values.is_cpu and moduli.numel() and not _SMALL < float(moduli.max()) < _LARGE:
        return values.to(torch.complex128).abs()
    return moduli


def _strided(tensor: Tensor) -> Tensor:
    if tensor.is_nested:
        return tensor.values()
    if tensor.layout is torch.strided:
        return tensor
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    if tensor.layout in _COMPRESSED:
        return tensor.values()
    return tensor.to_dense()
