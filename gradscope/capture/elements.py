"""The stored elements of a tensor of any layout."""

from typing import NamedTuple

import torch
from torch import Tensor

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)

_SMALL, _LARGE = 1e-30, 1e38
"""Largest moduli between which single precision is enough."""


class NotMeasurable(Exception):  # noqa: N818 - a verdict on a tensor, not a failure
    """The tensor has no elements that could be read; the message says why."""


class Elements(NamedTuple):
    """The elements of a tensor, each stored once."""

    values: Tensor
    """Real and floating, of any shape; the moduli of complex ones."""
    repeats: int
    """How many elements of the tensor share each stored one (expanded dimensions)."""
    numel: int
    """Elements of the tensor; a sparse layout leaves out zeros, so that these can be more than
    `values.numel() * repeats`."""


def elements(tensor: Tensor) -> Elements:
    """Return the stored elements of a tensor of any layout, without copying where possible.

    Raises:
        NotMeasurable: For meta tensors and subclasses whose elements are not reachable.
    """
    numel = tensor.numel()
    stored = _strided(own_elements(tensor))
    if stored.is_complex():
        stored = _moduli(stored)
    repeats = 1
    for dim, stride in enumerate(stored.stride()):
        if stride == 0 and stored.shape[dim] > 1:
            repeats *= stored.shape[dim]
            stored = stored.narrow(dim, 0, 1)
    return Elements(stored, repeats, numel)


def own_elements(tensor: Tensor) -> Tensor:
    """Return a tensor as torch's own kernels read it: of a distributed one, the part that is here.

    Raises:
        NotMeasurable: For meta tensors and subclasses whose elements are not reachable.
    """
    tensor = tensor.detach()
    stored = tensor if has_own_elements(tensor) else _unwrap(tensor)
    if stored.is_meta:
        raise NotMeasurable("a meta tensor has no elements")
    return stored


def is_readable(tensor: Tensor) -> bool:
    """Return whether the elements of a tensor can be read."""
    try:
        elements(tensor)
    except NotMeasurable:
        return False
    return True


def has_own_elements(tensor: Tensor) -> bool:
    """Return whether torch's own kernels read the tensor, and not what its class dispatches to."""
    kind = type(tensor)
    return kind is Tensor or kind.__torch_dispatch__ is Tensor.__torch_dispatch__


def _moduli(values: Tensor) -> Tensor:
    moduli = values.abs()
    # At either end of the range the modulus overflows, or is rounded off, where its parts are not.
    if values.is_cpu and moduli.numel() and not _SMALL < float(moduli.max()) < _LARGE:
        return values.to(torch.complex128).abs()
    return moduli


def _strided(tensor: Tensor) -> Tensor:
    if tensor.is_nested and type(tensor) is Tensor:
        return tensor.values()
    if tensor.layout is torch.strided:
        return tensor
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    if tensor.layout in _COMPRESSED:
        return tensor.values()
    return tensor.to_dense()


def _unwrap(tensor: Tensor) -> Tensor:
    for attribute in ("_local_tensor", "_values"):
        inner = getattr(tensor, attribute, None)
        if isinstance(inner, Tensor):
            return inner
    raise NotMeasurable(f"a `{type(tensor).__name__}` does not show its elements")


def in_memory_order(tensor: Tensor) -> Tensor:
    """Flatten without a copy where the elements lie densely, in whatever order of dimensions."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=strides.__getitem__, reverse=True)
    permuted = tensor.permute(order)
    return permuted.view(-1) if permuted.is_contiguous() else tensor.reshape(-1)
