"""The tensors in values of any kind, as autograd knows them."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node


class Edge(NamedTuple):
    """A tensor that requires grad, as autograd knows it: an output of a node, or a leaf."""

    node: Node | None
    slot: int
    leaf: Tensor | None


def edges(value: object) -> list[Edge]:
    """Return the tensors that require grad in a value, containers of any kind included."""
    if type(value) is tuple and len(value) == 1:
        value = value[0]
    # A tensor's attributes are torch functions too; no mode that is active needs to see these.
    with DisableTorchFunction():
        if type(value) is Tensor:
            return [_edge(value)] if value.requires_grad else []
        return [_edge(tensor) for tensor in tensors(value) if tensor.requires_grad]


def _edge(tensor: Tensor) -> Edge:
    node = tensor.grad_fn
    return Edge(None, 0, tensor) if node is None else Edge(node, tensor.output_nr, None)


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from tensors(getattr(value, item.name, None))
