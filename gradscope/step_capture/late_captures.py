"""Captures backward passes with non-finite values whose forward was not observed.

When backward starts, the graph and its saved tensors are still complete. Its lines are those of an
earlier graph of the same operations, captured together with its forward.
"""

import math
from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.naming import NamedModel, name_model
from gradscope.capture.source.lines import created
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph import VIEW_OPERATIONS
from gradscope.capture.step.known_values import KnownValues
from gradscope.capture.step.measurements import BackwardWatch, Measurements
from gradscope.capture.step.modules import ModuleCall
from gradscope.capture.training.locations import Location
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.step_captures import Start
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.forward.forward_values import Values
from gradscope.probes.forward.operations import NodeNumber
from gradscope.recording.evidence.failures import LateCapture, LineSource
from gradscope.step_capture.graph_trace import (
    GraphTrace,
    Suspect,
    lend,
    likeness,
    numbered,
    suspects,
    trace_of,
)
from gradscope.step_capture.nonfinite_search import Found, NonfiniteSearch
from gradscope.step_capture.script_models import LiveSources, script_of
from gradscope.step_capture.singular_points import SingularPoints, singular_values

_MOST = 8
"""Maximum number per run."""

_TRACES = 8
"""Maximum number of traces kept, for several losses."""

LineKey = tuple[int, int] | None
"""A line that calls backward, by its code."""


@dataclass(slots=True)
class LastStart:
    """Data of the last backward before a step."""

    key: LineKey
    subject: str
    is_broken: bool
    """Whether its loss was not finite."""
    order: int = 0
    """Index of its event in the step."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Operations that may have broken the gradients of a step."""

    named: NamedModel
    suspects: list[Suspect]
    parameters: tuple[int, ...]
    matched_step: int


@dataclass(slots=True)
class LateBackward:
    """A captured backward whose forward was not observed."""

    named: NamedModel
    capture: StepCapture
    watch: BackwardWatch | None
    """None if backward is never called."""
    found: Found
    values: dict[NodeNumber, tuple[int, Values]]
    """Operands and results at which a derivative may be infinite."""
    lines: LateCapture
    start: Start

    @property
    def loss(self) -> float | None:
        """Value at the root."""
        return None if self.start.loss is None else float(self.start.loss)

    @property
    def scale(self) -> float:
        """Factor on the root."""
        return 1.0 if self.start.scale is None else float(self.start.scale)

    @property
    def is_suspicion(self) -> bool:
        """Whether nothing was non-finite before the backward."""
        return self.loss is not None and math.isfinite(self.loss)

    def measured(self) -> Measurements:
        """Return the gradients that its finished backward delivered."""
        assert self.watch is not None
        self.watch.remove()
        return self.watch.measurements()

    def is_worth_recording(self, measured: Measurements) -> bool:
        """Return whether the forward or the backward broke something."""
        if self.is_suspicion:
            return any(stat.nonfinite for stat in measured.numbers.values())
        if self.start.scale is None or self.found.of_loss is None:
            return True
        slot = self.found.nodes.get(self.found.of_loss)
        return (
            slot != self.capture.graph.root
        )  # only the scale is too large, which the scaler corrects

    def stop_watching(self) -> None:
        """Remove the hooks on its backward, if there are any."""
        if self.watch is not None:
            self.watch.remove()

    def release(self) -> None:
        """Release the graph, and remove every hook in it."""
        self.stop_watching()
        self.capture.release_graph()


class LateCaptures:
    """Selects such backward passes, and captures them.

    Args:
        training: State of the training.
    """

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._traces: dict[LineKey, GraphTrace] = {}
        self._further: deque[GraphTrace] = deque(maxlen=_TRACES)
        """Traces of losses without a line of their own."""
        self._points: dict[LineKey, SingularPoints] = {}
        self._made = self._next = 0
        self._current: LateBackward | None = None
        self._key: LineKey = None
        """Line that called the last captured backward."""

    def remember(self, capture: StepCapture, key: LineKey, step: int) -> None:
        """Store the trace of a captured backward for later ones."""
        if key is None:
            self._further.append(trace_of(capture, step))
            return
        # Removed first, so that the order of the dict is that of the last use.
        self._traces.pop(key, None)
        self._traces[key] = trace_of(capture, step)
        known = self._points.get(key)
        self._points[key] = SingularPoints(capture.graph, known)
        if len(self._traces) > _TRACES:
            oldest = next(iter(self._traces))
            del self._traces[oldest], self._points[oldest]

    def is_suspicious(self, root: Tensor, key: LineKey, *, readable: bool) -> bool:
        """Return whether backward may break gradients although the loss is finite."""
        points = self._points.get(key)
        return points is not None and points.are_met(root, readable=readable)

    def is_trouble(self, start: Start, key: LineKey, step: int, *, readable: bool) -> bool:
        """Return whether a value of a backward is non-finite, or may become so."""
        if not self.may_search(step):
            return False
        return starts_broken(start) or self.is_suspicious(start.root, key, readable=readable)

    def begin_watched(self, start: Start, key: LineKey, *, readable: bool) -> None:
        """Capture a backward that is about to run."""
        with DisableTorchFunction(), torch.no_grad():
            late = self.begin(start, key, readable=readable)
            if late is not None:
                late.watch = late.capture.watch_backward(start.root, alone=True)
        self._current, self._key = late, key

    def take(self) -> LateBackward | None:
        """Return the running backward, if it is captured, and forget it."""
        current, self._current = self._current, None
        return current

    def mark_harmless(self) -> None:
        """Record that the last captured backward was suspicious and broke nothing."""
        if self._key in self._points:
            self._points[self._key].mark_harmless()

    def may_search(self, step: int) -> bool:
        """Return whether one more search is due."""
        return self._made < _MOST and step >= self._next

    def searched(self, step: int) -> None:
        """Record that a search was made."""
        self._made += 1
        # Growing distances: a script with lasting NaN must not search in every step.
        self._next = step + 10**self._made

    def suspect(
        self, key: LineKey, broken: Iterable[Tensor], finite: Iterable[Tensor]
    ) -> Suspicion | None:
        """Return operations that may have broken gradients whose graph is gone; None if none can.

        Args:
            key: The line that called their backward.
            broken: Parameters with non-finite gradients.
            finite: Parameters with finite gradients.
        """
        trace = self._traces.get(key)
        if trace is None:
            return None
        spoilt = set(map(id, broken))
        found = suspects(trace, spoilt, set(map(id, finite)))
        named = self._named()
        if not found or named is None:
            return None
        parameters = tuple(i for i, one in enumerate(named.parameters) if id(one) in spoilt)
        return Suspicion(named, found, parameters, trace.step)

    def _named(self) -> NamedModel | None:
        self._training.take_in()
        try:
            return name_model(script_of(self._training), None)
        except GradscopeError:
            return None  # a lazy parameter has no shape yet

    def begin(
        self,
        start: Start,
        key: LineKey,
        *,
        readable: bool,
        watched: StepCapture | None = None,
    ) -> LateBackward | None:
        """Return a capture of a graph before its backward; None if there is no graph.

        Args:
            start: The start of the backward.
            key: The line that calls backward.
            readable: Whether to read saved tensors if torch does not expose hooks on them.
            watched: The capture of its forward, if there is one.
        """
        named = self._named()
        if named is None:
            return None
        capture = (watched or StepCapture([])).for_backward(named.parameters)
        capture.trace(start.root)
        values = KnownValues(capture.graph, start.root, readable=readable)
        search = NonfiniteSearch(capture.graph, values, LiveSources(self._training).of)
        found = search.run()
        singular = singular_values(capture.graph, values)
        # Before the backward: values that are held would raise the peak of its memory.
        values.close()
        lines = self._lines(capture, key, named, found, is_watched=watched is not None)
        for origin in found.origins:
            location = found.nodes[origin.index][0] if origin.index in found.nodes else None
            location = found.met.get(origin.index) if location is None else location
            if location is not None:
                origin.line = capture.line_of(capture.graph.nodes[location])
        for index, slot in found.nodes.items():
            number = created(capture.graph.nodes[slot[0]])
            if number is not None:
                found.origins[index].output = NodeNumber(number, slot[1])
        return LateBackward(named, capture, None, found, singular, lines, start)

    def _lines(
        self,
        capture: StepCapture,
        key: LineKey,
        named: NamedModel,
        found: Found,
        *,
        is_watched: bool,
    ) -> LateCapture:
        """Assign lines to a graph, as far as they are known."""
        order = numbered(capture.graph)
        nodes = len(order)
        unsure = found.others.get(found.of_loss, ()) if found.of_loss is not None else ()
        source: LineSource = "watched" if is_watched else "module"
        step, lent = None, {location for _, location in order} if is_watched else set[int]()
        trace = None if is_watched else self._trace_like(capture, key)
        if trace is not None:
            lent = lend(trace, capture)
            if lent:
                source, step = "matched", trace.step
        if not is_watched:
            _add_owners(capture, named, lent)
        return LateCapture(
            lines=source,
            matched_step=step,
            matched_nodes=len(lent),
            nodes=nodes,
            unsure=unsure,
        )

    def _trace_like(self, capture: StepCapture, key: LineKey) -> GraphTrace | None:
        """Return the trace most similar to a graph, preferring those of the same line."""
        operations = [capture.graph.operations[location] for _, location in numbered(capture.graph)]
        known = self._traces.get(key)
        if known is not None and likeness(known, operations):
            return known
        # A script may call backward elsewhere in the same graph, as in an evaluation of gradients.
        every = (*self._traces.values(), *self._further)
        return max(every, key=lambda one: likeness(one, operations), default=None)


def _add_owners(capture: StepCapture, named: NamedModel, lent: set[int]) -> None:
    """Assign operations without a line to the module whose parameter they use."""
    owners = {
        node: named.modules[named.parameter_records[location].module]
        for location, node in capture.parameter_nodes().items()
    }
    for number, location in numbered(capture.graph):
        taken = (owners[node] for node, _ in capture.graph.successors[location] if node in owners)
        module = None if location in lent else next(taken, None)
        if module is not None:
            capture.modules.calls.append(ModuleCall(module, None, None, number, [], number + 1))
            # Layers use a view of their weight, such as the transposed one.
            if capture.graph.operations[location] in VIEW_OPERATIONS:
                owners[location] = module


def line_key(location: Location) -> LineKey:
    """Return the line that calls a backward; None if unknown."""
    line = location.inner
    return None if line is None else (id(line.code), line.number)


def starts_broken(start: Start) -> bool:
    """Return whether the loss is known to be non-finite; losses on devices are not read."""
    # A loss on an accelerator is a tensor here: reading it would wait for the device.
    return isinstance(start.loss, float) and not math.isfinite(start.loss)
