"""Observes every gradient as backward delivers it, by a prehook on each node of the graph."""

from functools import partial

from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from gradscope.capture.reading import is_plain
from gradscope.capture.statistics import HELD_ELEMENTS, Measurer
from gradscope.capture.step.graph import Graph
from gradscope.capture.training.guard import is_interruption

Slot = tuple[int, int]
"""A tensor of the graph: (node, output slot)."""


class GradientCollector:
    """Measures the gradient with respect to every distinct tensor of a graph.

    A prehook of a node gets the gradients with respect to the node's outputs, summed over all their
    uses. It is the only kind of hook that sees functional and in-place operations and outputs in
    any container, and that leaves gradients bit-identical.

    Args:
        graph: The graph whose backward is about to run.
        skip: Nodes without a hook: views, and leaves whose gradient is read after backward.
        measurer: Receives the gradients, with their `Slot` as key.
        faults: Receives exceptions of the hooks, which must not end the backward.
    """

    def __init__(
        self, graph: Graph, skip: set[int], measurer: Measurer, faults: list[Exception]
    ) -> None:
        self._graph, self._faults = graph, faults
        self._skip = skip
        self._measurer = measurer
        self._handles: list[RemovableHandle] = []
        self.arrived: list[Slot] = []
        """Tensors in the order in which their gradients were delivered."""

    def install(self) -> None:
        """Register the hooks."""
        self._handles = [
            # A prehook gets the gradients that the engine has summed over all uses of an
            # output. A hook on a tensor stays with the value before a later in-place write.
            node.register_prehook(
                partial(self._arrive_at_custom, number)
                if isinstance(node, BackwardCFunction)
                else partial(self._arrive, number)
            )
            for number, node in enumerate(self._graph.nodes)
            if number not in self._skip
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _arrive_at_custom(self, number: int, gradients: tuple[Tensor | None, ...]) -> None:
        # The engine passes its own buffers: no copy is made before the node runs.
        # The backward of a custom function may write into the gradients that it gets.
        try:
            copies = tuple(map(_copied, gradients))
        except Exception as error:  # noqa: BLE001 - the script must not suffer from it
            self._note(error)
        else:
            self._arrive(number, copies)

    def _arrive(self, number: int, gradients: tuple[Tensor | None, ...]) -> None:
        slot = 0
        try:
            for gradient in gradients:
                # None for an output that the loss does not depend on.
                if gradient is not None:
                    key = (number, slot)
                    self.arrived.append(key)
                    self._measurer.add(key, gradient)
                slot += 1  # enumerate is slower, and this runs for every node
        except Exception as error:  # noqa: BLE001 - the script must not suffer from it
            self._note(error)

    def _note(self, error: Exception) -> None:
        self._faults.append(error)
        # An exception that leaves a hook ends the backward of the script.
        if is_interruption(error):
            raise error


def _copied(gradient: Tensor | None) -> Tensor | None:
    """Return a copy of a small, readable gradient, otherwise the gradient itself."""
    if gradient is None or gradient.numel() > HELD_ELEMENTS or not is_plain(gradient):
        return gradient
    return gradient.clone()
