"""Operations whose derivative may be infinite: looked at before each backward, where that is cheap.

The gradient of `sqrt` at 0 is infinite though the loss is finite; afterwards nothing of the graph
would tell. What such an operation has saved tells it before.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.graph import Graph
from gradscope.capture.known_values import KnownValues
from gradscope.capture.lines import created
from gradscope.capture.saved_tensors import saved_tensors, saved_value
from gradscope.probes.forward_values import Values, values_of
from gradscope.probes.operations import NodeNumber, plain_floats

_SHARE = 0.02
"""Of the time between two backward passes of a line: what is looked at costs less."""

_HOP, _READ, _ELEMENT = 1.0e-6, 8.0e-6, 1.5e-10
"""Seconds that it takes to go from node to node, to read what a node has saved, and an element of
that."""

_MOST_ACQUITTED = 1 << 12


def _has_zero(tensor: Tensor) -> bool:
    low, high = torch.aminmax(tensor.detach())
    return _may_be(float(low), float(high), 0.0) and not bool(tensor.detach().all())


def _may_be(low: float, high: float, number: float) -> bool:
    return low <= number <= high or low != low


def _is_broken(tensor: Tensor) -> bool:
    low, high = torch.aminmax(tensor.detach())
    return not (math.isfinite(float(low)) and math.isfinite(float(high)))


def _reaches_one(tensor: Tensor) -> bool:
    low, high = torch.aminmax(tensor.detach())
    return not (float(low) > -1 and float(high) < 1)


def _is_negative(tensor: Tensor) -> bool:
    return not float(tensor.detach().min()) > 0


_SAVED: dict[str, tuple[str, Callable[[Tensor], bool]]] = {
    "Acos": ("self", _reaches_one),
    "Asin": ("self", _reaches_one),
    "Atan2": ("self", _has_zero),
    "Atanh": ("self", _reaches_one),
    "Div": ("other", _has_zero),
    "Erfinv": ("self", _reaches_one),
    "Exp": ("result", _is_broken),
    "LinalgVectorNorm": ("result", _has_zero),
    "Log": ("self", _is_negative),
    "Log10": ("self", _is_negative),
    "Log2": ("self", _is_negative),
    "Norm": ("result", _has_zero),
    "Pow": ("self", _has_zero),
    "Reciprocal": ("result", _is_broken),
    "Rsqrt": ("result", _is_broken),
    "Sqrt": ("result", lambda tensor: not float(tensor.detach().min()) > 0),
    "Std": ("result", _has_zero),
    "Xlogy": ("other", _has_zero),
}
"""By the node's name without `Backward0`: what it saves, and what of that makes gradients break."""


def _base(operation: str) -> str | None:
    base, _, number = operation.partition("Backward")
    return base if number.isdigit() and base in _SAVED else None


def is_singular(operation: str) -> bool:
    """Return whether an operation has points at which its derivative is infinite."""
    return _base(operation) is not None or operation.startswith("ProdBackward")


def _is_harmless_power(node: Node) -> bool:
    """Return whether a power has a derivative everywhere: a whole exponent, 1 or more."""
    exponent = saved_value(node, "exponent")
    return isinstance(exponent, int | float) and exponent >= 1


@dataclass(frozen=True, slots=True)
class _Hop:
    """How to come to a node from one before."""

    before: int
    edge: int
    operation: str
    is_singular: bool


class SingularPoints:
    """The operations of a graph that may break gradients, and the ways to them from its root.

    Args:
        graph: Of a backward that is captured.
        before: What was known of the line's backward before.
    """

    def __init__(self, graph: Graph, before: "SingularPoints | None") -> None:
        self._root = _name(graph.nodes[0])
        self._hops = _hops(graph)
        self._reads = sum(hop.is_singular for hop in self._hops)
        self._reads += _base(self._root) is not None
        self._elements = 0
        self._at: float | None = None if before is None else before._at
        self._interval: float = math.inf if before is None else before._interval
        self._acquitted: int = 0 if before is None else before._acquitted
        self._skip = 0

    def acquit(self) -> None:
        """Take in that what was met broke nothing: it is looked at less and less often."""
        self._acquitted = min(2 * self._acquitted + 1, _MOST_ACQUITTED)
        self._skip = self._acquitted

    def are_met(self, root: Tensor, *, readable: bool) -> bool:
        """Return whether one of the operations is at a point where its derivative is infinite."""
        if not self._reads or not root.is_cpu:
            return False
        now = time.perf_counter()
        if self._at is not None:
            self._interval = min(self._interval, now - self._at)
        self._at = now
        if not self._is_cheap() or root.grad_fn is None:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return self._walk(root.grad_fn, readable=readable)

    def _is_cheap(self) -> bool:
        cost = _HOP * len(self._hops) + _READ * self._reads + _ELEMENT * self._elements
        return cost <= _SHARE * self._interval

    def _walk(self, root: Node, *, readable: bool) -> bool:
        self._elements = 0
        if _name(root) != self._root:
            return False
        nodes: list[Node | None] = [root]
        if _base(self._root) and self._is_met(root, readable=readable):
            return True
        for hop in self._hops:
            before = nodes[hop.before]
            edges = () if before is None else before.next_functions
            node = edges[hop.edge][0] if hop.edge < len(edges) else None
            if node is not None and _name(node) != hop.operation:
                node = None  # the graph is another one
            nodes.append(node)
            if hop.is_singular and node is not None and self._is_met(node, readable=readable):
                return True
        return False

    def _is_met(self, node: Node, *, readable: bool) -> bool:
        saved, is_met = _SAVED[_name(node).partition("Backward")[0]]
        for name, tensor in saved_tensors(node, readable=readable):
            if name == saved and tensor.numel() and any(True for _ in plain_floats(tensor)):
                self._elements += tensor.numel()
                return is_met(tensor) and not _is_harmless_power(node)
        return False


def _name(node: Node) -> str:
    return type(node).__name__


def _hops(graph: Graph) -> list[_Hop]:
    """Return the ways from the root to the operations that may break gradients."""
    wanted = {
        place
        for place, operation in enumerate(graph.operations)
        if _base(operation) and not _is_harmless_power(graph.nodes[place])
    }
    needed = set(wanted)
    for place in sorted(wanted, reverse=True):
        before = graph.first_user[place]
        while before > 0 and before not in needed:
            needed.add(before)
            before = graph.first_user[before]
    places, hops = {0: 0}, list[_Hop]()
    for place in sorted(needed - {0}):
        before = graph.first_user[place]
        edges = [node for node, _ in graph.nodes[before].next_functions]
        edge = next(i for i, node in enumerate(edges) if node is graph.nodes[place])
        places[place] = len(hops) + 1
        operation = _name(graph.nodes[place])
        hops.append(_Hop(places[before], edge, operation, place in wanted))
    return hops


def singular_values(graph: Graph, values: KnownValues) -> dict[NodeNumber, tuple[int, Values]]:
    """Return what is known of the operands and results of operations that may break gradients."""
    found: dict[NodeNumber, tuple[int, Values]] = {}
    for place, operation in enumerate(graph.operations):
        if _base(operation) is None:
            continue
        for slot in (*values.inputs(place), (place, 0)):
            tensor = None if slot is None else values.known.get(slot)
            number = None if slot is None else created(graph.nodes[slot[0]])
            if slot is None or tensor is None or number is None:
                continue
            if any(True for _ in plain_floats(tensor)):
                found[NodeNumber(number, slot[1])] = tensor.numel(), values_of(tensor)
    return found
