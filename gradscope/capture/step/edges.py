"""Finds the tensors in values of any kind, as autograd identifies them."""

import dataclasses
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.source.lines import created

_NO_CONTAINERS = frozenset({bool, float, int, str, type(None), torch.dtype, torch.Size})


class Edge(NamedTuple):
    """A tensor that requires grad: an output of a node, or a leaf."""

    node: Node | None
    slot: int
    leaf: Tensor | None
    number: int | None = None
    """Sequence number of the node, if the node itself is not held."""


def without_node(edge: Edge) -> Edge:
    """Replace a node by its sequence number, so that the graph can be freed."""
    return edge if edge.node is None else Edge(None, edge.slot, None, created(edge.node))


def edges(value: object) -> list[Edge]:
    """Return the tensors that require grad in a value, including any containers."""
    if type(value) is tuple and len(value) == 1:
        value = value[0]
    # Tensor attributes are torch functions too; active modes need not see these accesses.
    with DisableTorchFunction():
        found = (value,) if type(value) is Tensor else _tensors(value)
        return [_edge(tensor) for tensor in found if tensor.requires_grad and not is_old(tensor)]


def _tensors(value: object) -> Iterable[Tensor]:
    """Return the tensors in a value, with a fast path for a tuple without containers."""
    if type(value) is not tuple:
        return tensors(value)
    found: list[Tensor] = []
    for item in value:
        if isinstance(item, Tensor):
            found.append(item)
        elif type(item) not in _NO_CONTAINERS:
            return tensors(value)
    return found


def is_old(tensor: Tensor) -> bool:
    """Return whether a tensor may be a view made before its base was written to.

    Reading its `grad_fn` would make autograd build a new node, with another sequence number.
    """
    return tensor._is_view() and tensor._version > 0


def _edge(tensor: Tensor) -> Edge:
    node = tensor.grad_fn
    # A view made under `no_grad` has no `grad_fn`, but its base is part of the graph.
    # `grad_fn` and `output_nr` are how autograd identifies a tensor: several Python objects may
    # stand for one, and a later one may reuse the `id` of a freed one.
    if node is None and tensor._is_view() and tensor._base is not None:  # made under no_grad
        return _edge(tensor._base)
    return Edge(None, 0, tensor) if node is None else Edge(node, tensor.output_nr, None)


def tensors(value: object, within: tuple[int, ...] = ()) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and dataclasses.

    Args:
        value: The value to search.
        within: `id`s of the enclosing containers, which are not entered again.
    """
    if isinstance(value, Tensor):
        yield value
        return
    items = _items(value)
    if items and id(value) not in within:
        within = (*within, id(value))
        for item in items:
            yield from tensors(item, within)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict | UserDict):
        return value.values()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, item.name, None) for item in dataclasses.fields(value)]
    return ()
