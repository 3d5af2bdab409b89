"""Every operation of a forward that is run again, those that torch's own layers make included."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.capture.reading import is_plain_float
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import VIEW_OPERATIONS, walk
from gradscope.capture.step.teardown import let_go
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that went through torch's dispatcher, and what it returned."""

    name: str
    """As the dispatcher knows it: `addmm`, `relu_`."""
    args: tuple[object, ...]
    kwargs: dict[str, object]
    outputs: tuple[Tensor, ...]
    """The plain floating tensors among what it returned."""
    is_view: bool


class OperationMode(TorchDispatchMode):
    """Hands on every operation once its outputs have their place in autograd's graph.

    An operation is run below autograd: only when the next one comes do its outputs know their node.
    So each is held until then, and no longer.
    """

    # User code may call such operators; without this torch refuses to run them under a mode.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._waiting: Operation | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its whole compiler, which takes seconds, to keep it out of this mode,
        # under which nothing compiled ever runs.
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run an operation."""
        kwargs = kwargs or {}
        self._hand_on()
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
        """Hand on the last operation, now that the forward has ended in a loss."""
        self._hand_on()

    def before(self, name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Look at an operation that is about to run."""

    def ran(self, operation: Operation) -> None:
        """Look at an operation that has just run."""

    def settled(self, operation: Operation) -> None:
        """Look at an operation whose outputs know their nodes."""

    def _hand_on(self) -> None:
        operation, self._waiting = self._waiting, None
        if operation is not None:
            with torch.no_grad():
                self.settled(operation)


def plain_floats(value: object) -> Iterator[Tensor]:
    """Yield the floating tensors that numbers can be read from, in a value or a list of values."""
    if isinstance(value, Tensor):
        # Of a class of its own, what torch's functions do may be anything.
        if is_readable(value):
            yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from plain_floats(item)


def is_readable(tensor: Tensor) -> bool:
    """Return whether floating numbers can be read from a tensor of torch's own classes."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and is_plain_float(tensor)


class NodeNumber(NamedTuple):
    """An operation's output, as autograd knows it."""

    number: int
    """The creation number of its node."""
    slot: int


def node_number(tensor: Tensor) -> NodeNumber | None:
    """Return where a tensor is in the graph, None where it is not in one or is a leaf.

    Of a view that was written to it is where the whole tensor is, that then holds the same.
    """
    node, slot = (tensor.grad_fn if tensor.requires_grad else None), tensor.output_nr
    while node is not None and type(node).__name__ in VIEW_OPERATIONS:
        node, slot = node.next_functions[0] if node.next_functions else (None, 0)
    number = None if node is None else created(node)
    return None if number is None else NodeNumber(number, slot)


Positions = dict[int, int]
"""By creation number of the second run's nodes: the node's record."""


def run_again(context: ProbeContext, mode: OperationMode) -> Positions | str:
    """Run the forward under a mode.

    Returns:
        Where the nodes' records are, or why the forward could not be run again. Where the second
        run made other nodes than the first, those between the first difference and the last have no
        place.
    """
    if context.opaque:
        return "compiled code runs out of sight"
    if not context.reruns:
        return "the forward may be run only once"
    try:
        with mode:
            outcome = context.forward()
    except GradscopeError as error:
        return f"the forward raised when it was run again: {error.what}"
    mode.ended(outcome.loss)
    graph = walk(outcome.loss)
    del outcome
    known = _in_order(context.capture.graph.nodes, context.capture.graph.operations)
    again = _in_order(graph.nodes, graph.operations)
    first = context.position.first_node
    positions = {number: first + index for number, index in _aligned(known, again)}
    graph.index.clear()
    graph.leaves.clear()
    let_go(graph.nodes)
    return positions


def reference(positions: Positions, number: NodeNumber | None) -> TensorRef | None:
    """Return a tensor of the recording's graph, None where it is not known there."""
    if number is None or number.number not in positions:
        return None
    return TensorRef(node=positions[number.number], slot=number.slot)


@dataclass(frozen=True, slots=True)
class _Made:
    """A node by what tells it from others, and where it is."""

    number: int
    index: int
    likeness: tuple[object, ...]


def _in_order(nodes: list[Node], operations: list[str]) -> list[_Made]:
    """Return nodes in the order of their making, without views.

    One view may be written in several ways: which of them torch takes is another matter under a
    mode.
    """
    made = [
        _Made(number, index, (operations[index], *_shapes(node)))
        for index, node in enumerate(nodes)
        if operations[index] not in VIEW_OPERATIONS and (number := created(node)) is not None
    ]
    return sorted(made, key=lambda node: node.number)


def _shapes(node: Node) -> list[object]:
    return [
        None if metadata.is_nested_tensor else tuple(metadata.shape)
        for metadata in node._input_metadata
    ]


def _aligned(known: list[_Made], again: list[_Made]) -> Iterator[tuple[int, int]]:
    """Yield numbers of the second run's nodes with places of the first's that are the same.

    Under a mode torch writes some operations in other ones, so that the runs may differ in places:
    what is before the first difference and after the last is the same.
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
