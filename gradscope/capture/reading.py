"""Decides whether a tensor's elements can be read, and through which tensor.

This module is the only gate to tensor memory, with `first_elements`, which builds on it. torch's
kernels trust a tensor: a read of freed memory ends the process. Tensor subclasses may answer a read
with a collective or with their own code. Therefore gradscope reads no element before this module
allows it. Callers disable torch functions, for example by `DisableTorchFunction`, where a tensor
may be a subclass.
"""

import sys
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, DispatchKey, _dispatch_keys

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

_OWN_KERNELS = tuple(
    key
    for name in ("CPU", "CUDA", "MPS", "XPU", "HPU", "PrivateUse1")
    if (key := getattr(DispatchKey, name, None)) is not None
)
"""Devices whose tensors have elements that kernels read in place."""

_STANDS_FOR_OTHERS = (
    DispatchKey.Python,
    DispatchKey.Functionalize,
    DispatchKey.FuncTorchBatched,
    DispatchKey.FuncTorchGradWrapper,
    DispatchKey.ZeroTensor,
)
"""Dispatch keys of tensors without elements of their own, whatever device they claim."""

_REASONS = (
    (DispatchKey.FuncTorchBatched, "it exists only within a transform of `torch.func`"),
    (DispatchKey.FuncTorchGradWrapper, "it exists only within a transform of `torch.func`"),
    (DispatchKey.Functionalize, "it exists only within a transform of `torch.func`"),
    (DispatchKey.ZeroTensor, "it is a zero tensor without memory"),
)

_FREED = "its memory has been freed"

CALCULABLE = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Real types that torch computes with. Others, such as float8, it only converts."""

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
"""Types that `float` or `complex` can convert to a number."""

_SMALL, _LARGE = 1e-30, 1e38
"""Range of moduli in which single precision suffices."""

_are_in_place: dict[int, bool] = {}
"""By dispatch keys: whether the elements of such tensors lie in their storage."""


class NotReadable(Exception):  # noqa: N818 - a verdict on a tensor, not a failure
    """The elements of the tensor cannot be read. The message says why."""


class Elements(NamedTuple):
    """Elements of a tensor, each stored once."""

    values: Tensor
    """Real floating-point elements, of any shape; the moduli of complex elements."""
    repeats: int
    """Number of elements of the tensor that share each stored one (expanded dimensions)."""
    numel: int
    """Number of elements of the tensor in this process. A sparse layout omits zeros: this may be
    more than `values.numel() * repeats`."""


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is strided and its elements can be read in place.

    It runs for every tensor of every step and costs well under a microsecond.
    """
    return is_in_place(tensor) and is_in_memory(tensor)


def is_transforming() -> bool:
    """Return whether `torch.func` transforms the running code: it has wrappers for tensors."""
    # They stand for batched or dual values, and have no numbers of their own.
    return torch._C._functorch.peek_interpreter_stack() is not None


def has_numbers(tensor: Tensor) -> bool:
    """Return whether a tensor is plain and has numbers of its own."""
    return is_plain(tensor) and not is_transforming()


def is_plain_float(tensor: Tensor) -> bool:
    """Return whether a tensor is plain and has a real type that torch computes with."""
    return tensor.dtype in CALCULABLE and is_plain(tensor)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Return a parameter's gradient; None for one that is no leaf, where asking makes torch warn.

    A frozen parameter is no leaf as long as it holds computed values that a script wrote into it.
    """
    return parameter.grad if parameter.is_leaf else None


def is_in_place(tensor: Tensor) -> bool:
    """Return whether torch's own kernels would read a tensor in its storage, if allocated."""
    # The keys decide which kernels run. Class, device and layout can be claimed by a subclass.
    known = _dispatch_keys(tensor).raw_repr()
    try:
        return _are_in_place[known]
    except KeyError:
        has = _dispatch_keys(tensor).has
        found = any(map(has, _OWN_KERNELS)) and not any(map(has, _STANDS_FOR_OTHERS))
        return _are_in_place.setdefault(known, found)


def is_in_memory(tensor: Tensor) -> bool:
    """Return whether the storage of an in-place tensor is allocated: it may have been freed."""
    # FSDP frees memory by resizing the storage to 0 bytes: shape and strides do not show it.
    there = tensor.untyped_storage().nbytes()
    if tensor.is_contiguous():
        offset = tensor.storage_offset()
        return tensor.nbytes + (offset and offset * tensor.itemsize) <= there
    # A tensor without elements is contiguous.
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in pairs)
    return (last + 1) * tensor.itemsize <= there


def only_number(tensor: Tensor) -> float | None:
    """Return the only element of a tensor of torch's own class in main memory; None for others.

    It runs once per step, between code that empties the processor's caches: each property of the
    tensor takes half a microsecond. The address tells that it has memory of its own.
    """
    if type(tensor) is not Tensor or not tensor.is_cpu:
        return None
    try:
        # Sparse and functional tensors, those of transforms of `torch.func`, and tensors of several
        # elements raise here.
        if not tensor.data_ptr() or (tensor.storage_offset() and not is_in_memory(tensor)):
            return None
        value = tensor.item()
    except RuntimeError:
        return None
    return value if type(value) is float else None


def stored(tensor: Tensor) -> Tensor:
    """Return a tensor of any layout whose elements torch's own kernels can read.

    For a distributed tensor, it is the local part. It does not copy or synchronize.

    Raises:
        NotReadable: The elements cannot be read, or have no floating-point type.
    """
    with DisableTorchFunction():
        while _wraps(tensor):
            tensor = _inner(tensor)
        reason = _why_not(tensor)
        if reason is not None:
            raise NotReadable(reason)
        return tensor.detach()


def why_unreadable(tensor: Tensor) -> str | None:
    """Return why the elements of a tensor cannot be read, None if they can."""
    try:
        stored(tensor)
    except NotReadable as reason:
        return str(reason)
    return None


def whole(tensor: Tensor) -> Tensor | None:
    """Return a tensor that holds all elements of another one in place; None if it is unreadable.

    Unlike `stored`, it never returns a part of a distributed tensor, and it accepts any number
    type.
    """
    with DisableTorchFunction():
        while _wraps(tensor):
            # Other placements leave elements on other ranks, or partial sums.
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
    """Return whether the memory of a tensor, or of one that it consists of, was freed."""
    with DisableTorchFunction():
        try:
            while _wraps(tensor):
                tensor = _inner(tensor)
        except NotReadable:
            return False  # only the subclass knows where its elements are
        return _why_not(tensor, of_any_type=True) == _FREED


def elements(tensor: Tensor) -> Elements:
    """Return the stored elements of a tensor of any layout, without a copy if possible.

    Raises:
        NotReadable: The elements cannot be read, or have no floating-point type.
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
                # Expanded dimensions have stride 0: all their elements are one in memory.
                values = values.narrow(dim, 0, 1)
        return Elements(values, repeats, part.numel())


def _wraps(tensor: Tensor) -> bool:
    """Return whether a tensor's class overrides operations on it."""
    return bool(_dispatch_keys(tensor).has(DispatchKey.Python))


def _why_not(tensor: Tensor, *, of_any_type: bool = False) -> str | None:
    """Return why the elements of a tensor, of a class that overrides nothing, cannot be read."""
    keys = _dispatch_keys(tensor)
    for key, reason in _REASONS:
        if keys.has(key):
            return reason
    # Fake and meta tensors have shapes and strides, but no memory.
    if tensor.is_meta:
        return "a meta tensor has no elements"
    if tensor.is_quantized or not (of_any_type or _has_numbers(tensor.dtype)):
        return f"its elements are {str(tensor.dtype).removeprefix('torch.')}"
    parts = _parts(tensor)
    if parts is None or not all(map(is_in_place, parts)):
        layout = str(tensor.layout).removeprefix("torch.")
        return f"a {layout} tensor on `{tensor.device.type}` is not read"
    # A nested tensor has as many values as its memory holds.
    is_cut = tensor.is_nested and parts[0].numel() < tensor.numel()
    return None if all(map(is_in_memory, parts)) and not is_cut else _FREED


def _has_numbers(dtype: torch.dtype) -> bool:
    return (dtype.is_floating_point or dtype.is_complex) and "float4" not in str(dtype)


def _parts(tensor: Tensor) -> tuple[Tensor, ...] | None:
    """Return the strided tensors that a tensor consists of; None if they are unknown."""
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
    """Return the tensor in which a tensor subclass stores its elements, or some of them.

    Raises:
        NotReadable: It stores none, or they are still being communicated.
    """
    kind = type(tensor)
    if kind is _class("torch.distributed._functional_collectives", "AsyncCollectiveTensor"):
        if not tensor.completed:  # type: ignore[attr-defined]
            raise NotReadable("another rank has not sent it yet")
        return tensor.elem  # type: ignore[attr-defined,no-any-return]
    distributed = _class("torch.distributed.tensor", "DTensor")
    if distributed is not None and issubclass(kind, distributed):
        # `to_local()` would be a node of the graph, and may communicate.
        return tensor._local_tensor  # type: ignore[attr-defined,no-any-return]
    if kind is _class("torch.nested._internal.nested_tensor", "NestedTensor"):
        return tensor._values  # type: ignore[return-value]
    raise NotReadable(f"a `{kind.__name__}` does not show its elements")


def _class(module: str, name: str) -> type | None:
    """Return a class of torch, None if it was not imported: the import takes seconds."""
    return getattr(sys.modules.get(module), name, None)


def _calculable(values: Tensor) -> Tensor:
    """Convert values to a type that torch computes with."""
    if values.dtype is torch.complex32:
        return values.to(torch.complex64)
    if values.is_complex() or values.dtype in CALCULABLE:
        return values
    return values.to(torch.float32)


def _moduli(values: Tensor) -> Tensor:
    moduli = values.abs()
    # At either end of the range, the modulus overflows or is rounded although its parts are not.
    if values.is_cpu and moduli.numel() and not _SMALL < float(moduli.max()) < _LARGE:
        return values.to(torch.complex128).abs()
    return moduli


def _strided(tensor: Tensor) -> Tensor:
    if tensor.is_nested:
        return tensor.values()
    if tensor.layout is torch.strided:
        return tensor
    if tensor.layout is torch.sparse_coo:
        # Before coalescing, an index may occur several times, and its values add up.
        return tensor.coalesce().values()
    if tensor.layout in _COMPRESSED:
        return tensor.values()
    return tensor.to_dense()
