"""One forward and backward under watch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradscope.capture.garbage import no_garbage_collection
from gradscope.capture.gradients import GradientCollector, Slot
from gradscope.capture.graph import Graph, walk
from gradscope.capture.modules import ModuleTracker
from gradscope.capture.shares import ShareCollector
from gradscope.capture.sites import Caller, SiteMode
from gradscope.capture.statistics import Measurer, Numbers, norms
from gradscope.capture.teardown import let_go
from gradscope.recording.records import GradientStat


@dataclass(slots=True)
class Measurements:
    """What one backward delivered, as numbers."""

    tensors: Numbers
    """By (node, output slot): the gradient with respect to that tensor."""
    arrived: list[Slot]
    """Tensors in the order in which their gradients were delivered."""
    accumulated: Numbers
    """By (place, 0): the gradient left in the parameter at that place in the list."""
    incoming: dict[int, Slot]
    """Places of parameters whose gradient was also seen on its way in, and where."""
    weights: list[float]
    """The norm of each parameter."""
    reached: set[int]
    """Places of the parameters that backward led to."""
    unmeasured: dict[Slot, str]
    """Why a gradient that was delivered has no numbers."""
    shares: Numbers
    """By (module call, place among its inputs): the part of the input's gradient that came through
    the call, where the input is used elsewhere too."""
    unmeasured_parameters: dict[int, str]
    """The same of gradients left in parameters, by place."""

    def parameter(self, place: int) -> GradientStat | None:
        """Return the numbers of a parameter's gradient, None where it got none."""
        if (place, 0) in self.accumulated:
            return self.accumulated[place, 0]
        slot = self.incoming.get(place)
        return None if slot is None else self.tensors[slot]


class StepCapture:
    """Watches one forward and its backward, and leaves everything as it was.

    ```
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        loss = loss_fn(model(x), y)
    measurements = capture.backward(loss)
    ```

    Args:
        parameters: The tensors whose accumulated gradients are measured.
        opaque: Do without lines and modules, because compiled code must not meet the modes and
            hooks that see them.
    """

    def __init__(self, parameters: list[nn.Parameter], *, opaque: bool = False) -> None:
        self._parameters = parameters
        self._opaque = opaque
        caller = Caller()
        self.sites = SiteMode(caller)
        self.modules = ModuleTracker(caller)
        self.graph = Graph()
        self.forward_at: float | None = None
        """When the forward began, by `time.perf_counter`."""
        self.backward_at: float | None = None

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Watch the forward that runs inside."""
        self.forward_at = time.perf_counter()
        if self._opaque:
            yield
            return
        self.modules.start()
        try:
            with self.sites:
                yield
        finally:
            self.modules.stop()

    @no_garbage_collection()
    def backward(self, loss: Tensor, grad_output: Tensor | None = None) -> Measurements:
        """Run backward from the loss and measure every gradient.

        Gradients accumulate into the parameters as they do without gradscope.

        Args:
            loss: Where backward starts; of one element unless `grad_output` is given.
            grad_output: The gradient to start from, shaped as `loss`.
        """
        self.backward_at = time.perf_counter()
        self.graph = walk(loss)
        before = self._places_with_gradient()
        nodes = self.parameter_nodes()
        # A parameter's gradient is read from `.grad` when backward is over, unless hooks of the
        # user's may have taken it away by then.
        hooked = {p for p in nodes if self._parameters[p]._post_accumulate_grad_hooks}
        skip = set(self.graph.shared_gradients())
        skip.update(node for place, node in nodes.items() if place not in hooked)
        measurer = Measurer()
        collector = GradientCollector(self.graph, skip, measurer)
        shares = Measurer()
        share_collector = ShareCollector(self.graph, self.modules.calls, shares)
        collector.install()
        share_collector.install()
        try:
            torch.autograd.backward(loss, grad_output)
        finally:
            collector.remove()
            share_collector.remove()
        arrived = self._places_with_gradient() - before
        return self._measure(measurer, shares, collector, nodes, set(nodes) | arrived)

    def close(self) -> None:
        """Let go of the graph.

        A graph of many thousand nodes is freed only when the loss is gone too, here or at the next
        `close`.
        """
        self.modules.calls.clear()
        self.graph.index.clear()
        self.graph.leaves.clear()
        let_go(self.graph.nodes)

    def parameter_nodes(self) -> dict[int, int]:
        """Return the graph's `AccumulateGrad` nodes by the place of their parameter."""
        places = {id(parameter): place for place, parameter in enumerate(self._parameters)}
        leaves = self.graph.leaves.items()
        return {places[id(leaf)]: node for node, leaf in leaves if id(leaf) in places}

    def _places_with_gradient(self) -> set[int]:
        return {place for place, p in enumerate(self._parameters) if p.grad is not None}

    def _measure(
        self,
        measurer: Measurer,
        shares: Measurer,
        collector: GradientCollector,
        nodes: dict[int, int],
        reached: set[int],
    ) -> Measurements:
        tensors, unmeasured = measurer.results(), measurer.unmeasured
        measurer = Measurer()
        for place in reached:
            gradient = self._parameters[place].grad
            if gradient is not None:
                measurer.add((place, 0), gradient)
        accumulated = measurer.results()
        return Measurements(
            tensors=tensors,
            arrived=collector.arrived,
            incoming={place: (node, 0) for place, node in nodes.items() if (node, 0) in tensors},
            accumulated=accumulated,
            weights=norms(list(self._parameters)),
            reached=reached,
            unmeasured=unmeasured,
            shares=shares.results(),
            unmeasured_parameters={place: why for (place, _), why in measurer.unmeasured.items()},
        )
