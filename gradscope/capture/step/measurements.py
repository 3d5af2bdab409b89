"""Measures the gradients of one backward with hooks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradscope.capture.garbage import no_garbage_collection
from gradscope.capture.statistics import Measurer, Numbers, norms
from gradscope.capture.step.gradients import GradientCollector, Slot
from gradscope.capture.step.shares import ShareCollector
from gradscope.recording.records import GradientStat

if TYPE_CHECKING:
    from gradscope.capture.step.forward_backward import StepCapture

_PARAMETER, _WEIGHT, _SHARE = -1, -2, -3
"""First parts of measurer keys that are no tensors of the graph. A single measurer receives
everything, so that an accelerator is read back once. For parts of inputs, the call index is
subtracted."""


@dataclass(slots=True)
class Measurements:
    """The measured gradients of one backward."""

    numbers: Numbers
    arrived: list[Slot]
    """Tensors in the order in which their gradients were delivered."""
    incoming: dict[int, Slot]
    """By index of the parameter: the slot where its gradient was measured before accumulation."""
    weights: list[float | None]
    """Norm of each parameter, None if it is unreadable."""
    reached: set[int]
    """Indices of the parameters that backward reached."""
    absent: list[Slot]
    """Keys of shares, as in `numbers`, for inputs that their call did not use."""
    unmeasured: dict[Slot, str]
    """Why a delivered gradient has no statistics."""

    def tensor(self, slot: Slot) -> GradientStat | None:
        """Return statistics of the gradient with respect to output `slot[1]` of node `slot[0]`."""
        return self.numbers.get(slot)

    def parameter(self, position: int) -> GradientStat | None:
        """Return the statistics of a parameter's gradient, None if it has none."""
        left = self.numbers.get((_PARAMETER, position))
        slot = self.incoming.get(position)
        return self.numbers.get(slot) if left is None and slot is not None else left

    def has_gradient(self, position: int) -> bool:
        """Return whether a parameter's gradient was measured."""
        return (_PARAMETER, position) in self.numbers or position in self.incoming

    def brief_parameters(self) -> tuple[GradientStat | None, ...]:
        """Return the statistics of every parameter's gradient, without the histograms."""
        brief = self.numbers.without_histogram
        return tuple(
            brief((_PARAMETER, position))
            or (brief(self.incoming[position]) if position in self.incoming else None)
            for position in range(len(self.weights))
        )

    def why_unmeasured(self, position: int) -> str | None:
        """Return why a parameter's gradient has no statistics, None if it has."""
        return self.unmeasured.get((_PARAMETER, position))

    def shares(self) -> Iterator[tuple[int, int, float | None]]:
        """Yield the norms of the parts of inputs' gradients that came through one module call.

        Each has the call and the index among its inputs, for inputs that are used elsewhere too.
        The norm is None if the call did not use the input.
        """
        for kind, position in self.numbers:
            if kind <= _SHARE:
                yield _SHARE - kind, position, self.numbers[kind, position].norm
        for kind, position in self.absent:
            yield _SHARE - kind, position, None


class BackwardWatch:
    """Measures the gradients of one backward, from its construction to `remove`.

    Args:
        capture: The capture of the forward, its graph traced.
        alone: Measure what the backward adds to existing gradients, not their sum.
        magnitudes: Also sort samples of the gradients' elements by magnitude.
    """

    def __init__(self, capture: "StepCapture", *, alone: bool, magnitudes: bool) -> None:
        self._capture = capture
        self._parameters = capture._parameters
        graph, self._nodes = capture.graph, capture.parameter_nodes()
        self._before = self._gradient_versions()
        # A parameter's gradient is read from `.grad` after backward, unless a user's hook may have
        # removed it by then, or it contains more than this backward added.
        self._added = {position for position in self._nodes if alone and position in self._before}
        # Optimizers that step in such a hook set the gradient to None before backward ends.
        # A post-accumulate hook runs after `AccumulateGrad` has written `.grad`.
        hooked = {p for p in self._nodes if self._parameters[p]._post_accumulate_grad_hooks}
        skip = set(graph.shared_gradients())
        skip.update(n for p, n in self._nodes.items() if p not in hooked | self._added)
        self._measurer = Measurer(magnitudes=magnitudes)
        self._faults: list[Exception] = []
        self._collector = GradientCollector(graph, skip, self._measurer, self._faults)
        calls = capture.modules.calls
        self._shares = ShareCollector(graph, calls, self._measurer, _SHARE, self._faults)
        self._collector.install()
        self._shares.install()

    @property
    def arrived(self) -> list[Slot]:
        """Tensors in the order in which their gradients were delivered."""
        return self._collector.arrived

    def remove(self) -> None:
        """Remove the hooks."""
        self._collector.remove()
        self._shares.remove()

    def _gradient_versions(self) -> dict[int, tuple[int, int]]:
        """Return, by parameter index, the versions that show whether a gradient was added to."""
        return {
            # Accumulation makes a new tensor or writes in place, which increments the version.
            position: (id(parameter.grad), parameter.grad._version)
            for position, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }

    @no_garbage_collection()
    def measurements(self) -> Measurements:
        """Return the gradients that the finished backward delivered.

        Raises:
            Exception: gradscope's own, which a hook kept from ending the backward.
        """
        if self._faults:
            raise self._faults[0]
        # Under a reentrant checkpoint, parameters get gradients without being part of the graph.
        # Versions tell: the nested backward of such a checkpoint has a graph of its own.
        after, before = self._gradient_versions(), self._before
        reached = set(self._nodes)
        reached |= {
            position for position, version in after.items() if before.get(position) != version
        }
        measurer, here = self._measurer, []
        for position, parameter in enumerate(self._parameters):
            is_added = position in self._added
            if position in reached and parameter.grad is not None and not is_added:
                measurer.add((_PARAMETER, position), parameter.grad)
            elif position in reached and not parameter.numel():
                measurer.unmeasured[_PARAMETER, position] = (
                    "none of its elements are in this process"
                )
            # One `norms` call for the CPU, and one transfer for everything on accelerators.
            if parameter.is_cpu:
                here.append(position)
            else:
                measurer.add((_WEIGHT, position), parameter)
        numbers = measurer.results()
        weights = dict(
            zip(here, norms([self._parameters[position] for position in here]), strict=True)
        )
        for position in range(len(self._parameters)):
            if position not in weights:
                weight = numbers.get((_WEIGHT, position))
                weights[position] = None if weight is None else weight.norm
        slots, counts = set(self.arrived), Counter(self._nodes.values())
        # FSDP1 gives many parameters one flat leaf: its gradient is of none of them alone.
        alone = {p: node for p, node in self._nodes.items() if counts[node] == 1}
        return Measurements(
            numbers=numbers,
            arrived=self.arrived,
            incoming={p: (node, 0) for p, node in alone.items() if (node, 0) in slots},
            weights=[weights[position] for position in range(len(self._parameters))],
            reached=reached,
            absent=self._shares.absent,
            unmeasured={k: why for k, why in measurer.unmeasured.items() if k[0] != _WEIGHT},
        )
