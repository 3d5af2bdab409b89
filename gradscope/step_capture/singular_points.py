"""Finds operations with infinite derivatives, before each backward, if that is cheap."""

import math
import re
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.known_values import KnownValues, saved_tensor, saved_value
from gradscope.frozen import dataclass
from gradscope.probes.forward.forward_values import Values, values_of
from gradscope.probes.forward.operations import NodeNumber, plain_floats

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def written(node: str) -> str:
    """Return the name of the operation behind a node: `log_softmax` for `LogSoftmaxBackward0`."""
    base, _, number = node.partition("Backward")
    return _CAPITAL.sub(r"_\1", base).lower() if number.isdigit() else base


_SHARE = 0.02
"""Maximum cost of these reads, as a share of the time between two backwards of a line."""

_FREE = 0.01
"""Additional seconds allowed, so that the first steps are always checked."""

_MOST_HARMLESS = 1 << 12


def _has_zero(tensor: Tensor) -> bool:
    low, high = torch.aminmax(tensor.detach())
    return _may_be(float(low), float(high), 0.0) and not bool(tensor.detach().all())


def _may_be(low: float, high: float, number: float) -> bool:
    # aminmax returns NaN if an element is NaN: the other elements are then unknown.
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
"""By the node's name without `Backward0`: a saved tensor, and the values that break gradients."""


def _base(operation: str) -> str | None:
    base, _, number = operation.partition("Backward")
    return base if number.isdigit() and base in _SAVED else None


def is_singular(operation: str) -> bool:
    """Return whether an operation has points at which its derivative is infinite."""
    return _base(operation) is not None or operation.startswith("ProdBackward")


def _is_harmless(node: Node) -> bool:
    """Return whether a derivative is finite everywhere: powers from 1 on, `x / 3`."""
    exponent = saved_value(node, "exponent")
    if isinstance(exponent, int | float):
        return exponent >= 1
    if not _name(node).startswith("Div"):
        return False
    divisor = saved_tensor(node, "other", readable=False)
    return divisor is not None and divisor.is_cpu and not divisor.dim() and bool(divisor)


def _is_wanted(graph: Graph, location: int) -> bool:
    return _base(graph.operations[location]) is not None and not _is_harmless(graph.nodes[location])


@dataclass(frozen=True, slots=True)
class _Hop:
    """An edge on the way to a node."""

    before: int
    edge: int
    operation: str
    is_singular: bool


class SingularPoints:
    """The operations of a graph that may break gradients, and the paths to them from its root.

    Args:
        graph: Graph of a captured backward.
        before: Earlier state for the same line.
    """

    def __init__(self, graph: Graph, before: "SingularPoints | None") -> None:
        self._root = _name(graph.nodes[0])
        self._reads_root = _is_wanted(graph, 0)
        self._hops = _hops(graph)
        self._at: float | None = None if before is None else before._at
        self._allowance: float = _FREE if before is None else before._allowance
        self._cost: float = 0.0 if before is None else before._cost
        self._harmless: int = 0 if before is None else before._harmless
        self._skip = 0

    def mark_harmless(self) -> None:
        """Record that a singular point broke nothing: it is then checked less often."""
        self._harmless = min(2 * self._harmless + 1, _MOST_HARMLESS)
        self._skip = self._harmless

    def are_met(self, root: Tensor, *, readable: bool) -> bool:
        """Return whether one of the operations is at a point with an infinite derivative."""
        # Reading values from an accelerator would wait for it.
        if not (self._hops or self._reads_root) or not root.is_cpu or root.grad_fn is None:
            return False
        began = time.perf_counter()
        if self._at is not None:
            # Capped, so that a long pause does not pay for reads at every following step.
            self._allowance = min(self._allowance + _SHARE * (began - self._at), _FREE)
        self._at = began
        if self._allowance < self._cost:
            return False
        if self._skip:
            self._skip -= 1
            return False
        met = self._walk(root.grad_fn, readable=readable)
        spent = time.perf_counter() - began
        # A moving average, so that one slow read does not end the checks.
        self._cost = spent if not self._cost else 0.8 * self._cost + 0.2 * spent
        self._allowance -= spent
        return met

    def _walk(self, root: Node, *, readable: bool) -> bool:
        if _name(root) != self._root:
            return False
        nodes: list[Node | None] = [root]
        if self._reads_root and _is_met(root, readable=readable):
            return True
        for hop in self._hops:
            before = nodes[hop.before]
            # By edge, because nodes have no names, and a walk through the graph would cost far
            # more.
            edges = () if before is None else before.next_functions
            node = edges[hop.edge][0] if hop.edge < len(edges) else None
            if node is not None and _name(node) != hop.operation:
                node = None  # the graph has changed
            nodes.append(node)
            if hop.is_singular and node is not None and _is_met(node, readable=readable):
                return True
        return False


def _is_met(node: Node, *, readable: bool) -> bool:
    """Return whether the saved tensors of an operation break its gradients."""
    name, is_met = _SAVED[_name(node).partition("Backward")[0]]
    tensor = saved_tensor(node, name, readable=readable)
    if tensor is None or not tensor.numel() or not any(True for _ in plain_floats(tensor)):
        return False
    return is_met(tensor) and not _is_harmless(node)


def _name(node: Node) -> str:
    return type(node).__name__


def _hops(graph: Graph) -> list[_Hop]:
    """Return the paths from the root to the operations that may break gradients."""
    wanted = {position for position in range(len(graph.nodes)) if _is_wanted(graph, position)}
    needed = set(wanted)
    for location in sorted(wanted, reverse=True):
        before = graph.first_user[location]
        while before > 0 and before not in needed:
            needed.add(before)
            before = graph.first_user[before]
    locations, hops = {0: 0}, list[_Hop]()
    for location in sorted(needed - {0}):
        before = graph.first_user[location]
        edges = [node for node, _ in graph.nodes[before].next_functions]
        edge = next(i for i, node in enumerate(edges) if node is graph.nodes[location])
        locations[location] = len(hops) + 1
        operation = _name(graph.nodes[location])
        hops.append(_Hop(locations[before], edge, operation, location in wanted))
    return hops


def singular_values(graph: Graph, values: KnownValues) -> dict[NodeNumber, tuple[int, Values]]:
    """Return the known operands and results of operations that may break gradients."""
    found: dict[NodeNumber, tuple[int, Values]] = {}
    for position, operation in enumerate(graph.operations):
        if _base(operation) is None:
            continue
        for slot in (*values.inputs(position), (position, 0)):
            tensor = None if slot is None else values.known.get(slot)
            number = None if slot is None else created(graph.nodes[slot[0]])
            if slot is None or tensor is None or number is None:
                continue
            if any(True for _ in plain_floats(tensor)):
                found[NodeNumber(number, slot[1])] = tensor.numel(), values_of(tensor)
    return found
