"""Walks the backward graph from the tensors in values of any kind, and frees deep graphs."""

import dataclasses
import math
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.autograd.graph import Node

from gradscope.capture.source.lines import NO_NUMBER, created
from gradscope.capture.step.views import is_old

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
        if type(value) is Tensor:  # of nearly every module call
            # Reading `grad_fn` of a view whose base was written to makes a new node.
            if not value.requires_grad or (value._is_view() and is_old(value)):
                return []
            node = value.grad_fn
            return [_edge(value) if node is None else Edge(node, value.output_nr, None)]
        return [
            _edge(tensor)
            for tensor in _tensors(value)
            if tensor.requires_grad and not is_old(tensor)
        ]


def _tensors(value: object) -> Iterable[Tensor]:
    """Return the tensors in a value, with a fast path for a tuple without containers."""
    if type(value) is not tuple:
        return tensors(value)
    found: list[Tensor] = []
    for item in value:
        if issubclass(type(item), Tensor):
            found.append(cast("Tensor", item))
        elif type(item) not in _NO_CONTAINERS:
            return tensors(value)
    return found


def _edge(tensor: Tensor) -> Edge:
    node = tensor.grad_fn
    # `grad_fn` and `output_nr` are how autograd identifies a tensor: several Python objects may
    # stand for one, and a later one may reuse the `id` of a freed one.
    if node is not None:
        return Edge(node, tensor.output_nr, None)
    # A view made under `no_grad` has no `grad_fn`, but its base is part of the graph.
    if tensor._is_view() and tensor._base is not None:
        return _edge(tensor._base)
    return Edge(None, 0, tensor)


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and dataclasses.

    No method that a script overrides is called, except by a `UserDict`: one may raise, or count
    its calls. Containers may be nested deeper than Python's calls, and may contain themselves.
    """
    # By `id`, because containers are not hashable. Those being entered stay alive in between.
    entered: dict[int, Iterator[object]] = {0: iter((value,))}
    while entered:
        innermost = next(reversed(entered))
        for item in entered[innermost]:
            if issubclass(type(item), Tensor):
                yield cast("Tensor", item)
            elif type(item) not in _NO_CONTAINERS and id(item) not in entered:
                entered[id(item)] = _items(item)
                break
        else:
            del entered[innermost]


def _items(value: object) -> Iterator[object]:
    kind = type(value)
    # Not `isinstance`: it asks an object for its class, which may be a property.
    for container, items in _ITEMS:
        if issubclass(kind, container):
            return iter(items(value))
    if issubclass(kind, UserDict):
        with suppress(Exception):  # code of the script's
            return iter([*cast("UserDict[object, object]", value).values()])
    if dataclasses.is_dataclass(kind) and not issubclass(kind, type):
        return iter([_field(value, one.name) for one in dataclasses.fields(kind)])
    return iter(())


_ITEMS: tuple[tuple[type, Callable[[Any], Iterable[object]]], ...] = (
    (tuple, tuple.__iter__),
    (list, list.__iter__),
    (dict, dict.values),
)
"""Containers, and what returns their items."""


def _field(value: object, name: str) -> object:
    try:
        return object.__getattribute__(value, name)
    except Exception:  # noqa: BLE001 - it may be a property of the script's, or have no value
        return None


VIEW_OPERATIONS = frozenset(
    {
        "AliasBackward0",
        "PermuteBackward0",
        "ReshapeAliasBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "SqueezeBackward2",
        "TBackward0",
        "TransposeBackward0",
        "UnsafeViewBackward0",
        "UnsqueezeBackward0",
        "ViewBackward0",
    }
)
"""Nodes whose input and output share every element: their gradients are the same."""

_ACCUMULATE = "AccumulateGrad"

_UNNAMED = frozenset({"CppFunction", "Node", "object"})
"""Python classes of nodes that only `name()` distinguishes."""


@dataclass(slots=True)
class Graph:
    """A backward graph, with nodes numbered in the order of a walk from the loss."""

    nodes: list[Node] = field(default_factory=list)
    """Nodes, held only until the capture ends. torch makes a new Python object for a node unless an
    old one is still referenced."""
    numbers: list[int | None] = field(default_factory=list)
    """By node: its sequence number, as `created` returns it. Threads count separately: numbers may
    occur twice."""
    index: dict[Node, int] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)
    successors: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    """By node: targets of its gradients, as (node, output slot of that node)."""
    leaves: dict[int, Tensor] = field(default_factory=dict)
    """By node: the tensor that an `AccumulateGrad` node accumulates into."""

    root: tuple[int, int] = (0, 0)
    """The loss: (node, output slot)."""
    first_user: list[int] = field(default_factory=list)
    """By node: the first visited node that sends it a gradient; -1 for the loss."""
    hooked: set[tuple[int, int]] = field(default_factory=set)
    """Tensors whose gradient a user's hook may change."""
    _leaf_nodes: dict[int, int] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)
    met_again: set[int] = field(default_factory=set)
    """Nodes that get gradients from more than one node."""

    def slot_of(self, edge: Edge) -> tuple[int, int] | None:
        """Return the tensor's (node, output slot), None if it is not part of the graph."""
        if edge.node is not None:
            node = self.index.get(edge.node)
        elif edge.number is not None:
            if not self._numbers:
                self._numbers = self.by_number()
            node = self._numbers.get(edge.number)
        else:
            if len(self._leaf_nodes) < len(self.leaves):
                # By `id`, because `==` of tensors compares elements.
                self._leaf_nodes = {id(leaf): node for node, leaf in self.leaves.items()}
            node = self._leaf_nodes.get(id(edge.leaf))
        return None if node is None else (node, edge.slot)

    def by_number(self) -> dict[int, int]:
        """Return the nodes by sequence number, in the order of the walk."""
        return {number: node for node, number in enumerate(self.numbers) if number is not None}

    def release(self) -> None:
        """Release the nodes and leaves, but not what is known of them."""
        self.index.clear()
        self.leaves.clear()
        self.numbers.clear()
        release(self.nodes)

    def shared_gradients(self) -> dict[int, tuple[int, int]]:
        """Return the view nodes whose gradient equals that of another tensor, with that tensor.

        A view passes its gradient on with another shape. If it is the only source of the gradient
        of its base, and no hook changes that, both gradients are the same.
        """
        return {
            node: self.successors[node][0]
            for node, operation in enumerate(self.operations)
            if operation in VIEW_OPERATIONS
            and len(self.successors[node]) == 1
            and self.successors[node][0][0] not in self.met_again
            and self.successors[node][0] not in self.hooked
        }


def walk(root: Tensor) -> Graph:
    """Follow `next_functions` from a tensor's node to the leaves."""
    graph = Graph()
    index, nodes, operations = graph.index, graph.nodes, graph.operations
    first_user, numbers, all_successors = graph.first_user, graph.numbers, graph.successors
    # A leaf has no `grad_fn`. The gradient edge is then its `AccumulateGrad` node, which autograd
    # keeps only weakly: without a graph that refers to it, a new one is made on each access.
    first, slot = torch.autograd.graph.get_gradient_edge(root)[:2]
    graph.root = (0, slot)
    index[first] = 0
    nodes.append(first)
    first_user.append(-1)
    for position, node in enumerate(nodes):  # the list grows during the loop
        successors = []
        for following, slot in node.next_functions:
            # Inputs that require no grad have an edge to nothing.
            if following is None:
                continue
            number = index.get(following)
            if number is None:
                number = index[following] = len(nodes)
                nodes.append(following)
                first_user.append(position)
            else:
                graph.met_again.add(number)
            successors.append((number, slot))
        all_successors.append(tuple(successors))
        # torch makes a Python class per C++ node, but some nodes share a generic one.
        operation = type(node).__name__
        # Nodes of extensions and of the engine have no Python class of their own.
        if operation in _UNNAMED:
            operation = node.name().rpartition("::")[2]
        sequence: int = node._sequence_nr()
        numbers.append(None if sequence == NO_NUMBER else sequence)
        if operation == _ACCUMULATE:
            # Of all nodes, only `AccumulateGrad` exposes the tensor that it belongs to.
            graph.leaves[len(operations)] = node.variable  # type: ignore[attr-defined]
        operations.append(operation)
    return graph


MOST_NODES = 20_000
"""Default for the maximum number of nodes that a search visits."""


def behind(
    roots: Iterable[Node | None],
    *,
    until: Callable[[Node], bool] | None = None,
    most: float = MOST_NODES,
) -> Iterator[Node]:
    """Yield the nodes of a graph, depth first, each once.

    Args:
        roots: Nodes to start from. They are yielded, too.
        until: Says of a node whether to leave out what is behind it.
        most: Maximum number of nodes to visit.
    """
    waiting = list(dict.fromkeys(root for root in roots if root is not None))
    seen = set(waiting)
    try:
        while waiting and len(seen) < most:
            node = waiting.pop()
            yield node
            if until is not None and until(node):
                continue
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)
    finally:
        # The set holds Python objects of the nodes. Dropping it at once could free a deep graph
        # recursively.
        nodes = list(seen)
        seen.clear()
        waiting.clear()
        release(nodes)


def leaf_of(node: Node) -> Tensor | None:
    """Return the tensor whose gradient a node accumulates, None for any other node."""
    # Only `AccumulateGrad` nodes have no sequence number: autograd gives all of them the highest
    # one, to run them as soon as they are ready. `variable` is their tensor.
    leaf = getattr(node, "variable", None) if created(node) is None else None
    return leaf if isinstance(leaf, Tensor) else None


DEEP = 5_000
"""Graphs with fewer nodes can be freed recursively without a stack overflow."""

SPACING = 1_000

_waiting: list[list[Node]] = []
"""For each deep graph that other code still holds: nodes in the order of the forward."""


def release(nodes: list[Node]) -> None:
    """Empty a list of a graph's nodes, so that freeing them does not overflow the stack."""
    # A node that is freed frees the nodes that it refers to, recursively. The anchors divide a
    # deep graph into pieces of bounded depth.
    if len(nodes) > DEEP:
        # Leaves free nothing else.
        nodes[:] = [node for node in nodes if node.next_functions]
        nodes.sort(key=_created, reverse=True)
        _waiting.append(nodes[::SPACING][::-1])
    nodes.clear()
    free_the_dead()


def free_the_dead() -> None:
    """Free the deep graphs whose loss is gone."""
    for anchors in list(_waiting):
        # From the end of the forward backwards: nobody else holds what only a dead node referred
        # to.
        while anchors and _is_ours_alone(anchors):
            anchors.pop()
        if not anchors:
            _waiting.remove(anchors)


def _created(node: Node) -> int:
    number: int = node._sequence_nr()
    return number


def _is_ours_alone(anchors: list[Node]) -> bool:
    # The list and the call's argument hold one reference each; a live graph holds a third.
    return sys.getrefcount(anchors[-1]) == 2


def leaves_behind(*starts: Edge) -> Iterator[Tensor]:
    """Yield the leaves from which any of some tensors was made, visiting each node once."""
    yield from (edge.leaf for edge in starts if edge.leaf is not None)
    for node in behind([edge.node for edge in starts], most=math.inf):
        leaf = leaf_of(node)
        if leaf is not None:
            yield leaf
