"""Runs and captures one forward and backward."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.naming import Shards, trained_by
from gradscope.capture.source.lines import NUMBERED, Caller, Line, created, sequence_number
from gradscope.capture.step.comparisons import ComparisonObserver
from gradscope.capture.step.cuts import CutTracker
from gradscope.capture.step.derivatives import DerivativeObserver
from gradscope.capture.step.forward_calls import (
    BackwardObserver,
    CheckpointObserver,
    SwitchObserver,
)
from gradscope.capture.step.graph import Graph, walk
from gradscope.capture.step.losses.answer_sight import AnswerSightObserver
from gradscope.capture.step.losses.bootstraps import BootstrapObserver
from gradscope.capture.step.losses.fresh_targets import FreshTargetObserver
from gradscope.capture.step.losses.own_anchors import OwnAnchorObserver
from gradscope.capture.step.losses.own_rows import OwnRowObserver
from gradscope.capture.step.losses.pair_labels import PairLabelObserver
from gradscope.capture.step.losses.target_ranges import (
    ProbabilityTargetObserver,
    TargetRangeObserver,
)
from gradscope.capture.step.measurements import BackwardWatch, Measurements, Slot
from gradscope.capture.step.modules import ModuleTracker
from gradscope.capture.step.self_averages import SelfAverageObserver
from gradscope.capture.step.sequences.masked_weights import MaskedWeightObserver
from gradscope.capture.step.sequences.padding import (
    BehindPaddingObserver,
    PaddedMeanObserver,
)
from gradscope.capture.step.sequences.padding_masks import PaddingMaskObserver
from gradscope.capture.step.sequences.positions import PositionRowObserver
from gradscope.capture.step.sites import SiteMode
from gradscope.capture.step.stored_gradients import KeptGradientObserver
from gradscope.capture.step.unvarying import UnvaryingObserver
from gradscope.capture.step.views import forget_views
from gradscope.capture.step.writes import WriteObserver, watch_parameters_made
from gradscope.garbage import no_garbage_collection


class StepCapture:
    """Captures one forward and its backward, and restores everything.

    ```
    capture = StepCapture(list(members.parameters(model)))
    with capture.forward():
        loss = loss_fn(model(x), y)
    measurements = capture.backward(loss)
    ```

    Args:
        parameters: The tensors whose accumulated gradients are measured.
        opaque: Omit lines and modules, because compiled code must not meet the modes and hooks that
            record them. This also applies if torch exposes no sequence numbers.
    """

    def __init__(self, parameters: list[nn.Parameter], *, opaque: bool = False) -> None:
        self._parameters = parameters
        self.shards: Shards = {}
        self._opaque = opaque or not NUMBERED
        caller = Caller()
        self.cuts = CutTracker(caller)
        self.checkpoints = CheckpointObserver(caller)
        self.comparisons = ComparisonObserver()
        self.switches = SwitchObserver(self.cuts)
        self.backwards = BackwardObserver()
        self.writes = WriteObserver()
        self.averages = SelfAverageObserver()
        self.derivatives = DerivativeObserver()
        self.kept_gradients = KeptGradientObserver()
        self.unvarying = UnvaryingObserver()
        self.pair_labels = PairLabelObserver()
        self.probability_targets = ProbabilityTargetObserver()
        self.padding_masks = PaddingMaskObserver()
        self.masked_weights = MaskedWeightObserver()
        self.position_rows = PositionRowObserver()
        self.behind_padding = BehindPaddingObserver()
        self.target_ranges = TargetRangeObserver()
        self.answer_sight = AnswerSightObserver()
        self.bootstraps = BootstrapObserver()
        self.own_rows = OwnRowObserver()
        self.fresh_targets = FreshTargetObserver()
        self.own_anchors = OwnAnchorObserver()
        self.padded_means = PaddedMeanObserver(self.comparisons.tokens)
        self._observers = (
            self.kept_gradients,
            self.unvarying,
            self.pair_labels,
            self.probability_targets,
            self.padding_masks,
            self.masked_weights,
            self.position_rows,
            self.behind_padding,
            self.target_ranges,
            self.answer_sight,
            self.bootstraps,
            self.own_rows,
            self.fresh_targets,
            self.own_anchors,
            self.padded_means,
            self.averages,
            self.derivatives,
            self.comparisons,
            self.switches,
            self.backwards,
            self.writes,
        )
        self.sites = SiteMode(caller, self.cuts, self._observers)
        self.first_number = sequence_number()
        """Sequence number of the forward's first node: nodes with smaller numbers are older."""
        self.modules = ModuleTracker(caller)
        self.graph = Graph()
        self.forward_at: float | None = None
        """Start time of the forward, by `time.perf_counter`."""
        self.backward_at: float | None = None
        self.arrived: list[Slot] = []
        """Tensors in the order in which their gradients were delivered."""

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Observe the forward that runs inside."""
        self.forward_at = time.perf_counter()
        if self._opaque:
            yield
            return
        self.modules.start()
        try:
            # After the hooks of modules: a mode that the script's call enters later comes before
            # this one.
            with self.sites, watch_parameters_made(self.cuts), self.checkpoints.watch():
                yield
        finally:
            self.modules.stop()

    @no_garbage_collection()
    def trace(self, loss: Tensor) -> None:
        """Walk the graph from the loss. `backward` does it if it was not done before."""
        self.graph = walk(loss)
        hooked = {self.graph.slot_of(edge) for edge in self.sites.hooked}
        self.graph.hooked.update(slot for slot in hooked if slot is not None)
        for node, leaf in self.graph.leaves.items():
            # A leaf's hooks may be older than this forward, in which `register_hook` is observed.
            if leaf._backward_hooks:
                self.graph.hooked.add((node, 0))

    def other_leaves(self) -> list[Tensor]:
        """Return the leaves of the graph that are not parameters."""
        own = set(self.parameter_nodes().values())
        return [leaf for node, leaf in self.graph.leaves.items() if node not in own]

    def for_backward(
        self, parameters: list[nn.Parameter], shards: Shards | None = None
    ) -> "StepCapture":
        """Return a capture for one of several backward passes of the forward.

        Args:
            parameters: The tensors whose gradients are measured.
            shards: Parameters that other tensors replace in the graph.
        """
        # Shallow: lines and module calls belong to the forward, and all its backwards share them.
        one = copy(self)
        one._parameters, one.graph, one.arrived = parameters, Graph(), []
        one.shards = shards or {}
        return one

    def reach_back(self, earlier: "StepCapture") -> None:
        """Add the module calls of an earlier forward, if the graph reaches back into it."""
        if any(number < self.first_number for number in self.graph.by_number()):
            self.modules = self.modules.with_earlier(earlier.modules)

    @no_garbage_collection()
    def backward(self, loss: Tensor, grad_output: Tensor | None = None) -> Measurements:
        """Run backward from the loss and measure every gradient.

        Gradients accumulate into the parameters as without gradscope.

        Args:
            loss: The tensor to start from; of one element unless `grad_output` is given.
            grad_output: The gradient to start from, shaped as `loss`.
        """
        watch = self.watch_backward(loss)
        try:
            # Not `loss.backward()`, which subclasses and torch function modes can intercept.
            torch.autograd.backward(loss, grad_output)
        finally:
            watch.remove()
        return watch.measurements()

    @no_garbage_collection()
    def watch_backward(
        self, loss: Tensor, *, alone: bool = False, magnitudes: bool = True
    ) -> BackwardWatch:
        """Register hooks in the graph whose backward is about to run.

        Args:
            loss: The tensor from which backward will start.
            alone: Measure what it adds to existing gradients, not their sum.
            magnitudes: Also sort samples of the gradients' elements by magnitude.
        """
        self.backward_at = time.perf_counter()
        if not self.graph.nodes:
            self.trace(loss)
        watch = BackwardWatch(
            self._parameters,
            self.graph,
            self.parameter_nodes(),
            self.modules.calls,
            alone=alone,
            magnitudes=magnitudes,
        )
        self.arrived = watch.arrived
        return watch

    def last_operation(self) -> int | None:
        """Return the node whose gradient arrived last.

        After an exception in backward, it is the node whose own backward raised.
        """
        return self.arrived[-1][0] if self.arrived else None

    def close(self) -> None:
        """Release the graph. The lines and modules of its nodes remain known.

        A graph of many thousand nodes is freed only after the loss, here or at the next `close`.
        """
        self.modules.release()
        self.sites.hooked.clear()
        self.cuts.close()
        for observer in self._observers:
            observer.close()
        forget_views()
        self.release_graph()

    def line_of(self, node: Node) -> Line | None:
        """Return the line that made a node; otherwise the line that called its module."""
        number = created(node)
        if number is None:
            return None
        line = self.sites.find(number)
        # Nodes of fused layers and of custom functions may have no line of their own.
        call = None if line else self.modules.innermost().find(number)
        return line if call is None else self.modules.calls[call].line

    def parameter_nodes(self) -> dict[int, int]:
        """Return the graph's `AccumulateGrad` nodes by index of their parameter.

        Several parameters share a node if they are parts of one flat tensor.
        """
        # By `id`, because `==` of tensors compares elements.
        positions = {id(parameter): position for position, parameter in enumerate(self._parameters)}
        return {
            positions[id(one)]: node
            for node, leaf in self.graph.leaves.items()
            for one in trained_by(leaf, self.shards)
            if id(one) in positions
        }

    def release_graph(self) -> None:
        """Release the graph, but not the records of what made it."""
        self.graph.release()
