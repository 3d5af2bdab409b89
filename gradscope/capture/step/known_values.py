"""Reads the values of a graph's tensors from its nodes, before backward frees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.source.lines import created
from gradscope.capture.step.edges import is_old
from gradscope.capture.step.gradients import Slot
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.recomputation import Unknown, recomputation
from gradscope.capture.step.saved_tensors import has_storage, saved_tensors, saved_value

_MOST_BYTES = 1 << 29
"""Maximum size of all recomputed results together."""


@dataclass(slots=True)
class _Operands:
    """The operands of a node."""

    node: Node
    inputs: tuple[Slot | None, ...]
    """Slots of the inputs; None for inputs that need no gradient."""
    own: dict[str, Tensor]
    """Tensors saved by the node itself."""
    known: dict[Slot, Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        # The inputs of a node in backward are the gradients of its results in the forward.
        return tuple(self.node._input_metadata[0].shape)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.node._input_metadata[0].dtype
        return dtype

    @property
    def count(self) -> int:
        return len(self.inputs)

    def tensor(self, position: int, name: str = "") -> Tensor:
        # Detached: recomputing must not add nodes to the graph of the script.
        if name in self.own:
            return self.own[name].detach()
        slot = self.inputs[position] if position < len(self.inputs) else None
        if slot is None or slot not in self.known:
            raise Unknown
        return self.known[slot].detach()

    def saved(self, name: str) -> Tensor | None:
        return self.own.get(name)

    def value(self, name: str) -> Any:  # noqa: ANN401 - as torch saves it
        return saved_value(self.node, name)


class KnownValues:
    """Known values of the tensors of a graph whose backward has not started.

    A node exposes the tensors that it saved: its inputs, which other nodes made, or its result.
    Other tensors are recomputed from saved ones if that is exact.

    Args:
        graph: The graph, traced.
        root: The tensor from which it starts.
        readable: Whether to read saved tensors if torch does not expose hooks on them.
    """

    def __init__(self, graph: Graph, root: Tensor, *, readable: bool) -> None:
        self._graph = graph
        self.known: dict[Slot, Tensor] = {}
        """Known tensors, by node and output slot."""
        self._own: dict[int, dict[str, Tensor]] = {}
        self.order = sorted(
            range(len(graph.nodes)), key=lambda position: _number(graph.nodes[position])
        )
        """The nodes in the order in which they were made, leaves first."""
        self._bytes = 0
        for position, leaf in graph.leaves.items():
            if has_storage(leaf):
                self.known[position, 0] = leaf
        if has_storage(root) and not is_old(root):
            self.known[graph.root] = root
        for position, node in enumerate(graph.nodes):
            self._read(position, node, readable=readable)
        for position in self.order:
            self._compute(position)

    def close(self) -> None:
        """Release every tensor."""
        self.known.clear()
        self._own.clear()

    def inputs(self, position: int) -> tuple[Slot | None, ...]:
        """Return the slot of each input of a node; None for inputs that need no gradient."""
        index = self._graph.index
        return tuple(
            None if node is None or node not in index else (index[node], slot)
            for node, slot in self._graph.nodes[position].next_functions
        )

    def constants(self, position: int) -> Iterator[Tensor]:
        """Yield the operands of a node that need no gradient, if it saved them."""
        return (
            one
            for name, one in self._own.get(position, {}).items()
            if not name.startswith(("result", "output", "mask", "condition"))
            and not one.requires_grad
        )

    def saved(self, position: int, name: str) -> Tensor | None:
        """Return the tensor that a node saved under a name, None if it is unreadable."""
        return self._own.get(position, {}).get(name)

    def _read(self, position: int, node: Node, *, readable: bool) -> None:
        own = self._own.setdefault(position, {})
        for name, tensor in saved_tensors(node, readable=readable):
            own.setdefault(name, tensor)
            if not tensor.requires_grad or is_old(tensor) or tensor.grad_fn is None:
                continue
            maker = self._graph.index.get(tensor.grad_fn)
            if maker is not None:
                self.known.setdefault((maker, tensor.output_nr), tensor)

    def _compute(self, position: int) -> None:
        node = self._graph.nodes[position]
        compute = recomputation(self._graph.operations[position])
        if (position, 0) in self.known or compute is None or not self._fits_limit(node):
            return
        operands = _Operands(node, self.inputs(position), self._own.get(position, {}), self.known)
        try:
            result = compute(operands)
        except (Unknown, RuntimeError, TypeError, IndexError):
            return
        # A result that is a view of an operand takes no further memory.
        if result.untyped_storage().data_ptr() not in self._shared(operands):
            self._bytes += result.nbytes
        if tuple(result.shape) == operands.shape:
            self.known[position, 0] = result

    def _fits_limit(self, node: Node) -> bool:
        metadata = node._input_metadata
        if len(metadata) == 0 or metadata[0].is_nested_tensor:
            return False
        size = metadata[0].dtype.itemsize
        for length in metadata[0].shape:
            size *= int(length)
        return bool(self._bytes + size <= _MOST_BYTES)

    def _shared(self, operands: _Operands) -> set[int]:
        slots = [slot for slot in operands.inputs if slot is not None]
        given = (self.known[slot] for slot in slots if slot in self.known)
        return {one.untyped_storage().data_ptr() for one in given}


def _number(node: Node) -> int:
    number = created(node)
    return -1 if number is None else number
