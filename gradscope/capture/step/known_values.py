"""Reads the values of a graph's tensors from its nodes, before backward frees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.reading import is_plain
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import Graph
from gradscope.capture.step.measurements import Slot
from gradscope.capture.step.recomputation import Unknown, recomputation
from gradscope.capture.step.views import is_old

if TYPE_CHECKING:
    from typing_extensions import TypeIs


_RAW = "_raw_saved_"

_OF_FUNCTION = "_raw_saved_tensors"
"""Attribute of a custom function with the tensors saved by its `ctx`."""


def saved_tensors(node: Node, *, readable: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a node saved, by torch's name: `self`, `result`.

    It skips tensors that backward freed, that were written to since, or that the script's own hooks
    packed: under a checkpoint, unpacking would run the forward.

    Args:
        node: The node.
        readable: Whether to read them if torch does not expose hooks on them.
    """
    # torch exposes each saved tensor twice: `_saved_x` unpacks it, `_raw_saved_x` does not.
    for raw_name in _raw_names(type(node)):
        try:
            # Only the raw form can be read without running unpack hooks.
            # Backward without `retain_graph` frees saved tensors; any access then raises.
            raw = getattr(node, raw_name)
            if all(_is_unhooked(one, readable=readable) for one in _listed(raw)):
                name = raw_name.removeprefix(_RAW)
                custom = raw_name == _OF_FUNCTION and hasattr(type(node), "saved_tensors")
                # Unpacking checks the version: after an in-place write, it raises.
                saved = getattr(node, "saved_tensors" if custom else f"_saved_{name}")
                yield from ((name, one) for one in _listed(saved) if has_storage(one))
        except (AttributeError, RuntimeError):
            continue


def saved_tensor(node: Node, name: str, *, readable: bool) -> Tensor | None:
    """Return the tensor that an operation of torch saved under a name, None as above."""
    try:
        if _is_unhooked(getattr(node, _RAW + name), readable=readable):
            saved = getattr(node, f"_saved_{name}")
            return saved if has_storage(saved) else None
    except (AttributeError, RuntimeError):
        pass
    return None


def saved_value(node: Node, name: str) -> object:
    """Return a number or a list of numbers that a node saved, None if it has none."""
    value = getattr(node, f"_saved_{name}", None)
    if isinstance(value, tuple):
        return tuple(map(_signed, value))
    return _signed(value)


def has_storage(value: object) -> "TypeIs[Tensor]":
    """Return whether a value is a strided tensor whose elements can be read."""
    if not isinstance(value, Tensor) or type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return is_plain(value)


@cache
def _raw_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith(_RAW))


def _listed(value: object) -> tuple[object, ...]:
    if isinstance(value, tuple | list):
        return tuple(value)
    return () if value is None else (value,)


def _is_unhooked(raw: object, *, readable: bool) -> bool:
    if not hasattr(raw, "unpack_hook"):
        return readable
    return raw.unpack_hook is None


def _signed(value: object) -> object:
    """Return a dimension with its sign: torch shows -1 as an unsigned number."""
    is_unsigned = isinstance(value, int) and not isinstance(value, bool) and value >= 2**63
    return value - 2**64 if is_unsigned and isinstance(value, int) else value


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
        # A root that was written to since holds other values than the node returned.
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
        # Versions of torch save different names and numbers: what they do not show stays unknown.
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
