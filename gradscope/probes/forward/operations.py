"""Observes every operation of a repeated forward, those inside torch's layers included."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.capture.observed_calls import Args, Function
from gradscope.capture.reading import is_plain_float
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import VIEW_OPERATIONS, release, walk
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.context import ProbeContext
from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True)
class Operation:
    """A call through torch's dispatcher, and its result."""

    name: str
    """The dispatcher's name: `addmm`, `relu_`."""
    args: tuple[object, ...]
    kwargs: dict[str, object]
    outputs: tuple[Tensor, ...]
    """Plain floating-point tensors of its result."""
    is_view: bool


class OperationMode(TorchDispatchMode):
    """Reports every operation once its outputs have their position in autograd's graph.

    An operation runs below autograd: its outputs know their node only when the next operation
    starts. Each is held until then.
    """

    # User code may call such operators, which torch otherwise refuses to run under a mode.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._waiting: Operation | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its whole compiler, which takes seconds, to disable it under this
        # mode, although nothing compiled ever runs here.
        return False

    def __torch_dispatch__(
        self,
        func: Function,
        types: object,
        args: Args = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run an operation."""
        kwargs = kwargs or {}
        self._hand_on()
        # Higher-order operators, as of checkpoints, have no name of an operation, and run others.
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        self.before(name, args, kwargs)
        result = func(*args, **kwargs)
        outputs = tuple(plain_floats(result))
        operation = Operation(name, args, kwargs, outputs, func.is_view)
        self.ran(operation)
        if outputs:
            self._waiting = operation
        return result

    def ended(self, loss: Tensor) -> None:
        """Report the last operation after the forward has ended with a loss."""
        self._hand_on()

    def before(self, name: str, args: Args, kwargs: dict[str, object]) -> None:
        """Observe an operation that is about to run."""

    def ran(self, operation: Operation) -> None:
        """Observe an operation that has just run."""

    def settled(self, operation: Operation) -> None:
        """Observe an operation whose outputs know their nodes."""

    def _hand_on(self) -> None:
        operation, self._waiting = self._waiting, None
        if operation is not None:
            with torch.no_grad():
                self.settled(operation)


def plain_floats(value: object) -> Iterator[Tensor]:
    """Yield the readable floating-point tensors in a value or a list of values."""
    if isinstance(value, Tensor):
        # torch functions of a subclass may do anything.
        if is_readable(value):
            yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from plain_floats(item)


def is_readable(tensor: Tensor) -> bool:
    """Return whether a tensor of torch's own classes has readable floating-point values."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and is_plain_float(tensor)


class NodeNumber(NamedTuple):
    """An operation's output in autograd's graph."""

    number: int
    """Sequence number of its node."""
    slot: int


def node_number(tensor: Tensor) -> NodeNumber | None:
    """Return the position of a tensor in the graph, None for leaves and tensors without a graph.

    For a view that was written to, it is that of the whole tensor, with the same content.
    """
    node, slot = (tensor.grad_fn if tensor.requires_grad else None), tensor.output_nr
    while node is not None and type(node).__name__ in VIEW_OPERATIONS:
        node, slot = node.next_functions[0] if node.next_functions else (None, 0)
    number = None if node is None else created(node)
    return None if number is None else NodeNumber(number, slot)


Positions = dict[int, int]
"""Positions of nodes' records, by the sequence numbers of the second run."""


def run_again(context: ProbeContext, mode: OperationMode) -> Positions | str:
    """Run the forward under a mode.

    Returns:
        Positions of the nodes' records, or why the forward could not be run again. If the second
            run made other nodes, those between the first and the last difference have no position.
    """
    if context.opaque:
        return "compiled code cannot be observed"
    if not context.reruns:
        return "the forward may run only once"
    try:
        with mode:
            outcome = context.forward()
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    mode.ended(outcome.loss)
    graph = walk(outcome.loss)
    # The loss would keep the graph alive, which is released piece by piece below.
    del outcome
    known = _in_order(context.capture.graph.nodes, context.capture.graph.operations)
    again = _in_order(graph.nodes, graph.operations)
    first = context.position.first_node
    positions = {number: first + index for number, index in _aligned(known, again)}
    graph.index.clear()
    graph.leaves.clear()
    release(graph.nodes)
    return positions


def reference(positions: Positions, number: NodeNumber | None) -> TensorRef | None:
    """Return a tensor of the recording's graph, None if it is unknown there."""
    if number is None or number.number not in positions:
        return None
    return TensorRef(node=positions[number.number], slot=number.slot)


@dataclass(frozen=True, slots=True)
class _Made:
    """A node with its position and what distinguishes it from others."""

    number: int
    index: int
    likeness: tuple[object, ...]


def _in_order(nodes: list[Node], operations: list[str]) -> list[_Made]:
    """Return nodes in order of creation, without views.

    torch may create the same view by different operations under a mode.
    """
    made = [
        _Made(number, index, (operations[index], *_shapes(node)))
        for index, node in enumerate(nodes)
        if operations[index] not in VIEW_OPERATIONS and (number := created(node)) is not None
    ]
    # The order of creation is that of the forward; that of the walk depends on branches.
    return sorted(made, key=lambda node: node.number)


def _shapes(node: Node) -> list[object]:
    return [
        None if metadata.is_nested_tensor else tuple(metadata.shape)
        for metadata in node._input_metadata
    ]


def _aligned(known: list[_Made], again: list[_Made]) -> Iterator[tuple[int, int]]:
    """Yield numbers of the second run's nodes with positions of equal nodes in the first.

    Under a mode torch decomposes some operations, so the runs may differ locally. Nodes before the
    first and after the last difference are the same.
    """
    shorter = min(len(known), len(again))
    ahead = 0
    while ahead < shorter and known[ahead].likeness == again[ahead].likeness:
        ahead += 1
    behind = 0
    while behind < shorter - ahead and known[-1 - behind].likeness == again[-1 - behind].likeness:
        behind += 1
    for old, new in zip(known[:ahead], again[:ahead], strict=True):
        yield new.number, old.index
    if behind:
        for old, new in zip(known[-behind:], again[-behind:], strict=True):
            yield new.number, old.index
