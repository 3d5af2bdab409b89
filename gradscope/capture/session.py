"""One forward and backward under watch."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.autograd_calls import BackwardWitness, SwitchWitness
from gradscope.capture.comparisons import ComparisonWitness
from gradscope.capture.cuts import CutTracker
from gradscope.capture.garbage import no_garbage_collection
from gradscope.capture.gradients import GradientCollector, Slot
from gradscope.capture.graph import Graph, walk
from gradscope.capture.lines import NUMBERED, Caller, Line, created, sequence_number
from gradscope.capture.modules import ModuleTracker
from gradscope.capture.parameters_made import watch_parameters_made
from gradscope.capture.shares import ShareCollector
from gradscope.capture.sites import SiteMode
from gradscope.capture.statistics import Measurer, Numbers, norms
from gradscope.capture.teardown import let_go
from gradscope.capture.writes import WriteWitness
from gradscope.recording.records import GradientStat

_PARAMETER, _WEIGHT, _SHARE = -1, -2, -3
"""First parts of the measurer's keys of what is no tensor of the graph: one measurer takes all, so
that an accelerator is read back once. Of the parts of inputs, the call is subtracted from it."""


@dataclass(slots=True)
class Measurements:
    """What one backward delivered, as numbers."""

    numbers: Numbers
    arrived: list[Slot]
    """Tensors in the order in which their gradients were delivered."""
    incoming: dict[int, Slot]
    """Places of parameters whose gradient was seen on its way in, and where."""
    weights: list[float]
    """The norm of each parameter."""
    reached: set[int]
    """Places of the parameters that backward led to."""
    absent: list[Slot]
    """Keys of shares, as in `numbers`, of inputs that their call made no use of."""
    unmeasured: dict[Slot, str]
    """Why a gradient that was delivered has no numbers."""

    def tensor(self, slot: Slot) -> GradientStat | None:
        """Return the numbers of the gradient with respect to output `slot[1]` of node `slot[0]`."""
        return self.numbers.get(slot)

    def parameter(self, place: int) -> GradientStat | None:
        """Return the numbers of the gradient left in a parameter, None where there is none."""
        left = self.numbers.get((_PARAMETER, place))
        slot = self.incoming.get(place)
        return self.numbers.get(slot) if left is None and slot is not None else left

    def brief_parameters(self) -> tuple[GradientStat | None, ...]:
        """Return the same for every parameter, without the histograms."""
        brief = self.numbers.without_histogram
        return tuple(
            brief((_PARAMETER, place))
            or (brief(self.incoming[place]) if place in self.incoming else None)
            for place in range(len(self.weights))
        )

    def why_unmeasured(self, place: int) -> str | None:
        """Return why the gradient left in a parameter has no numbers, None where it is not so."""
        return self.unmeasured.get((_PARAMETER, place))

    def shares(self) -> Iterator[tuple[int, int, float | None]]:
        """Yield the norms of parts of inputs' gradients that came through one module call.

        They come with the call and the input's place among its inputs, for inputs that are used
        elsewhere too; None where the call made no use of the input.
        """
        for kind, place in self.numbers:
            if kind <= _SHARE:
                yield _SHARE - kind, place, self.numbers[kind, place].norm
        for kind, place in self.absent:
            yield _SHARE - kind, place, None


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
            hooks that see them. So it is too where torch does not number its nodes.
    """

    def __init__(self, parameters: list[nn.Parameter], *, opaque: bool = False) -> None:
        self._parameters = parameters
        self._opaque = opaque or not NUMBERED
        caller = Caller()
        self.cuts = CutTracker(caller)
        self.comparisons = ComparisonWitness()
        self.switches = SwitchWitness(self.cuts)
        self.backwards = BackwardWitness()
        self.writes = WriteWitness()
        witnesses = (
            self.comparisons,
            self.switches,
            self.backwards,
            self.writes,
        )
        self.sites = SiteMode(caller, self.cuts, witnesses)
        self.first_number = sequence_number()
        """What the first node of the forward gets: nodes with smaller ones are older."""
        self.modules = ModuleTracker(caller)
        self.graph = Graph()
        self.forward_at: float | None = None
        """When the forward began, by `time.perf_counter`."""
        self.backward_at: float | None = None
        self.arrived: list[Slot] = []
        """Tensors in the order in which their gradients were delivered."""

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Watch the forward that runs inside."""
        self.forward_at = time.perf_counter()
        if self._opaque:
            yield
            return
        self.modules.start()
        try:
            with self.sites, watch_parameters_made(self.cuts):
                yield
        finally:
            self.modules.stop()

    @no_garbage_collection()
    def trace(self, loss: Tensor) -> None:
        """Walk the graph from the loss; `backward` does it if nobody has before."""
        self.graph = walk(loss)
        hooked = {self.graph.slot_of(edge) for edge in self.sites.hooked}
        self.graph.hooked.update(slot for slot in hooked if slot is not None)
        for node, leaf in self.graph.leaves.items():
            if leaf._backward_hooks:
                self.graph.hooked.add((node, 0))

    def other_leaves(self) -> list[Tensor]:
        """Return the leaves of the graph that are none of the parameters."""
        own = set(self.parameter_nodes().values())
        return [leaf for node, leaf in self.graph.leaves.items() if node not in own]

    def for_backward(self, parameters: list[nn.Parameter]) -> "StepCapture":
        """Return the same for one of several backward passes that the forward leads to.

        Args:
            parameters: The tensors whose gradients are measured.
        """
        one = copy(self)
        one._parameters, one.graph, one.arrived = parameters, Graph(), []
        return one

    def reach_back(self, earlier: "StepCapture") -> None:
        """Take the module calls of a forward before, if the graph reaches back into it."""
        if any(number < self.first_number for number in self.nodes_by_number()):
            self.modules = self.modules.with_earlier(earlier.modules)

    @no_garbage_collection()
    def backward(self, loss: Tensor, grad_output: Tensor | None = None) -> Measurements:
        """Run backward from the loss and measure every gradient.

        Gradients accumulate into the parameters as they do without gradscope.

        Args:
            loss: Where backward starts; of one element unless `grad_output` is given.
            grad_output: The gradient to start from, shaped as `loss`.
        """
        watch = self.watch_backward(loss)
        try:
            torch.autograd.backward(loss, grad_output)
        finally:
            watch.remove()
        return watch.measurements()

    @no_garbage_collection()
    def watch_backward(self, loss: Tensor, *, alone: bool = False) -> "BackwardWatch":
        """Put hooks into the graph whose backward is about to run.

        Args:
            loss: Where it will start.
            alone: Measure what it adds to gradients that are there, not what they come to.
        """
        self.backward_at = time.perf_counter()
        if not self.graph.nodes:
            self.trace(loss)
        watch = BackwardWatch(self, alone=alone)
        self.arrived = watch.arrived
        return watch

    def last_operation(self) -> int | None:
        """Return the node whose gradient came last.

        After an exception in backward it is the one whose own backward raised.
        """
        return self.arrived[-1][0] if self.arrived else None

    def close(self) -> None:
        """Let go of the graph; which lines and modules made what is still known.

        A graph of many thousand nodes is freed only when the loss is gone too, here or at the next
        `close`.
        """
        self.modules.let_go()
        self.sites.hooked.clear()
        self.cuts.close()
        self.comparisons.close()
        self.let_go_of_graph()

    def line_of(self, node: Node) -> Line | None:
        """Return the line that made a node; else the line that called the module that did."""
        number = created(node)
        if number is None:
            return None
        line = self.sites.find(number)
        call = None if line else self.modules.innermost().find(number)
        return line if call is None else self.modules.calls[call].line

    def nodes_by_number(self) -> dict[int, int]:
        """Return the graph's nodes by their creation numbers."""
        numbers = ((created(node), index) for index, node in enumerate(self.graph.nodes))
        return {number: index for number, index in numbers if number is not None}

    def parameter_nodes(self) -> dict[int, int]:
        """Return the graph's `AccumulateGrad` nodes by the place of their parameter."""
        places = {id(parameter): place for place, parameter in enumerate(self._parameters)}
        leaves = self.graph.leaves.items()
        return {places[id(leaf)]: node for node, leaf in leaves if id(leaf) in places}

    def let_go_of_graph(self) -> None:
        """Let go of the graph alone, and not of what made it."""
        self.graph.index.clear()
        self.graph.leaves.clear()
        let_go(self.graph.nodes)


class BackwardWatch:
    """Measures the gradients of one backward, between its making and `remove`.

    Args:
        capture: Of the forward, its graph traced.
        alone: Measure what the backward adds to gradients that are there, not what they come to.
    """

    def __init__(self, capture: StepCapture, *, alone: bool) -> None:
        self._capture = capture
        self._parameters = capture._parameters
        graph, self._nodes = capture.graph, capture.parameter_nodes()
        self._before = self._gradient_versions()
        # A parameter's gradient is read from `.grad` when backward is over, unless hooks of the
        # user's may have taken it away by then, or it holds more than what is to be measured.
        self._added = {place for place in self._nodes if alone and place in self._before}
        hooked = {p for p in self._nodes if self._parameters[p]._post_accumulate_grad_hooks}
        skip = set(graph.shared_gradients())
        skip.update(n for p, n in self._nodes.items() if p not in hooked | self._added)
        self._measurer = Measurer()
        self._collector = GradientCollector(graph, skip, self._measurer)
        self._shares = ShareCollector(graph, capture.modules.calls, self._measurer, _SHARE)
        self._collector.install()
        self._shares.install()

    @property
    def arrived(self) -> list[Slot]:
        """Tensors in the order in which their gradients were delivered."""
        return self._collector.arrived

    def remove(self) -> None:
        """Take the hooks out again."""
        self._collector.remove()
        self._shares.remove()

    def _gradient_versions(self) -> dict[int, tuple[int, int]]:
        """Return what tells by place of the parameter whether a gradient was added to."""
        return {
            place: (id(parameter.grad), parameter.grad._version)
            for place, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }

    @no_garbage_collection()
    def measurements(self) -> Measurements:
        """Return what the backward, which is over, has delivered."""
        # Under a reentrant checkpoint parameters get gradients without being part of the graph.
        after, before = self._gradient_versions(), self._before
        reached = set(self._nodes)
        reached |= {place for place, version in after.items() if before.get(place) != version}
        measurer, here = self._measurer, []
        for place, parameter in enumerate(self._parameters):
            is_added = place in self._added
            if place in reached and parameter.grad is not None and not is_added:
                measurer.add((_PARAMETER, place), parameter.grad)
            if parameter.is_cpu:
                here.append(place)
            else:
                measurer.add((_WEIGHT, place), parameter)
        numbers = measurer.results()
        weights = dict(zip(here, norms([self._parameters[place] for place in here]), strict=True))
        for place in range(len(self._parameters)):
            if place not in weights:
                weight = numbers.get((_WEIGHT, place))
                weights[place] = math.nan if weight is None else weight.norm
        slots = set(self.arrived)
        return Measurements(
            numbers=numbers,
            arrived=self.arrived,
            incoming={p: (node, 0) for p, node in self._nodes.items() if (node, 0) in slots},
            weights=[weights[place] for place in range(len(self._parameters))],
            reached=reached,
            absent=self._shares.absent,
            unmeasured={k: why for k, why in measurer.unmeasured.items() if k[0] != _WEIGHT},
        )
