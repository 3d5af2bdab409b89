"""Walks the backward graph: nodes, edges, leaves."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.source.lines import created
from gradscope.capture.step.edges import Edge

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
                numbers = ((created(node), position) for position, node in enumerate(self.nodes))
                self._numbers = {
                    number: position for number, position in numbers if number is not None
                }
            node = self._numbers.get(edge.number)
        else:
            if len(self._leaf_nodes) < len(self.leaves):
                self._leaf_nodes = {id(leaf): node for node, leaf in self.leaves.items()}
            node = self._leaf_nodes.get(id(edge.leaf))
        return None if node is None else (node, edge.slot)

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
    # A leaf has no `grad_fn`. The gradient edge is then its `AccumulateGrad` node, which autograd
    # keeps only weakly: without a graph that refers to it, a new one is made on each access.
    first, slot = torch.autograd.graph.get_gradient_edge(root)[:2]
    graph.root = (0, slot)
    index[first] = 0
    nodes.append(first)
    graph.first_user.append(-1)
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
                graph.first_user.append(position)
            else:
                graph.met_again.add(number)
            successors.append((number, slot))
        graph.successors.append(tuple(successors))
        # torch makes a Python class per C++ node, but some nodes share a generic one.
        operation = type(node).__name__
        if operation in _UNNAMED:
            operation = node.name().rpartition("::")[2]
        if operation == _ACCUMULATE:
            # Of all nodes, only `AccumulateGrad` exposes the tensor that it belongs to.
            graph.leaves[len(operations)] = node.variable  # type: ignore[attr-defined]
        operations.append(operation)
    return graph
