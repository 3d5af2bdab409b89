"""Assembles the records of a recording from captures, step by step."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from torch import nn

from gradscope.capture.naming import NamedModel
from gradscope.capture.reading import gradient_of
from gradscope.capture.source.definitions import Definitions
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import sources_around, statements_around
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.graph_records import CutFinder, GraphPosition, GraphRecords
from gradscope.capture.step.measurements import Measurements
from gradscope.capture.step.stored_gradients import UNREADABLE, keep
from gradscope.garbage import no_garbage_collection
from gradscope.phrasing import counted
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    EventRecord,
    GradientStat,
    InputStat,
    ParameterRecord,
    ParameterStat,
    Reach,
    Recording,
    Skipped,
    StepKind,
    StepRecord,
    TensorStat,
)
from gradscope.recording.stored_gradient import KeepMode, StoredGradient

_ON_THE_WAY = "no gradient arrived; the cause is recorded for the judged step only"

NOT_DELIVERED = "backward delivered no gradient here"
"""Why a tensor of the graph has no statistics, if it could have been measured."""


class Assembler:
    """Collects the records of one recording.

    Args:
        named: The model's parameters and modules, as the captures know them.
        version: Version of gradscope.
        command: The command, for the record.
        environment: The environment of the run.
        definitions: The lines that made the modules, as far as they are known.
    """

    def __init__(
        self,
        named: NamedModel,
        *,
        version: str,
        command: str,
        environment: Environment,
        definitions: Definitions | None = None,
    ) -> None:
        self._named = named
        self._version, self._command, self._environment = version, command, environment
        self._began = time.perf_counter()
        self._graphs = GraphRecords(named, definitions or Definitions())
        self._evidence: list[object] = []
        self._steps: list[StepRecord] = []
        self._events: list[EventRecord] = []
        self._parameter_stats: list[ParameterStat] = []
        self._tensor_stats: list[TensorStat] = []
        self._cuts: list[CutRecord] = []
        self._input_stats: list[InputStat] = []
        self._skipped: list[Skipped] = []
        self._kept: list[StoredGradient] = []

    def note(self, *evidence: object) -> None:
        """Add evidence from a probe: records of the kinds in `recording.evidence`."""
        self._evidence += evidence

    def site_of(self, line: Line | None) -> int | None:
        """Return the index of a line's record, added if it is new."""
        return self._graphs.site_of(line)

    def skip(self, what: str, reason: str) -> None:
        """Record what could not be measured."""
        # Steps repeat the same reason, and the report shows it once.
        note = Skipped(what=what, reason=reason)
        if note not in self._skipped:
            self._skipped.append(note)

    def keep_gradients(self, mode: KeepMode) -> None:
        """Store the current gradients of the parameters, as those of the next step."""
        parameters = enumerate(self._named.parameters)
        gradients = {at: g for at, p in parameters if (g := gradient_of(p)) is not None}
        kept = keep(list(gradients.values()), mode)
        self._kept += [
            one.of(len(self._steps), position)
            for position, one in zip(gradients, kept, strict=True)
            if one is not None
        ]
        if unreadable := sum(one is None for one in kept):
            self.skip(f"the elements of {counted(unreadable, 'gradient')}", UNREADABLE)

    def position_of(self, capture: StepCapture) -> GraphPosition:
        """Return the position of the records of a capture's graph, added if it is new."""
        known = len(self._graphs)
        position = self._graphs.add(capture)
        if position.graph == known:
            for note in self._graphs.hidden(capture):
                self.skip(note.what, note.reason)
        return position

    @no_garbage_collection()
    def add_step(
        self,
        kind: StepKind,
        capture: StepCapture,
        measured: Measurements,
        *,
        loss: float | None,
        optimizer: str | None = None,
        update_norms: Sequence[float | None] | None = None,
    ) -> None:
        """Add one forward and backward, and what an optimizer step then changed.

        Args:
            kind: Whether the step is the target's own.
            capture: The capture of the step.
            measured: The gradients that its backward delivered.
            loss: The loss, None if backward started from a non-scalar.
            optimizer: The optimizer that stepped with these gradients.
            update_norms: The norms of its updates, by parameter.
        """
        step = len(self._steps)
        position = self.position_of(capture)
        self._steps.append(
            StepRecord(index=step, kind=kind, graph=position.graph, loss=loss, optimizer=optimizer)
        )
        reasons = self._explain_unreached(capture, measured, position)
        for record in self._named.parameter_records:
            norm = None if update_norms is None else update_norms[record.index]
            reason = reasons.get(record.index)
            gradient = measured.parameter(record.index)
            self._parameter_stats.append(
                parameter_stat(step, record, measured, gradient, reason, norm)
            )
        self._tensor_stats += _tensor_stats(step, capture, measured, position.first_node)
        self._input_stats += [
            InputStat(step=step, call=position.first_call + call, position=order, norm=norm)
            for call, order, norm in measured.shares()
        ]
        self._note_unmeasured(measured)
        self._note_times(step, capture)

    @no_garbage_collection()
    def add_training_step(
        self,
        capture: StepCapture,
        measured: Measurements,
        gradients: Sequence[GradientStat | None],
        *,
        loss: float | None,
        optimizer: str,
    ) -> None:
        """Add a step before the judged one: its loss, and the norms of parameters.

        Args:
            capture: The capture of the step.
            measured: The gradients that its backward delivered.
            gradients: The parameters' gradients among them.
            loss: The loss, None if backward started from a non-scalar.
            optimizer: The optimizer that stepped with these gradients.
        """
        step = len(self._steps)
        self._steps.append(
            StepRecord(index=step, kind="training", graph=None, loss=loss, optimizer=optimizer)
        )
        self._parameter_stats += [
            parameter_stat(step, record, measured, gradient, _ON_THE_WAY, None)
            for record, gradient in zip(self._named.parameter_records, gradients, strict=True)
        ]
        self._note_times(step, capture)

    def add_broken_step(self, capture: StepCapture, *, reason: str) -> None:
        """Add a step whose backward did not finish, with its graph as far as there is one.

        Its gradients are unknown, and none is reported as missing.
        """
        position = self.position_of(capture) if capture.graph.nodes else None
        self._steps.append(
            StepRecord(
                index=len(self._steps),
                kind="step",
                graph=None if position is None else position.graph,
                loss=None,
                optimizer=None,
            )
        )
        self._note_times(len(self._steps) - 1, capture)
        self.skip("gradients", reason)

    def _explain_unreached(
        self, capture: StepCapture, measured: Measurements, position: GraphPosition
    ) -> dict[int, str]:
        """Return why parameters have no gradient, and store the cuts that explain it."""
        named = self._named
        unreached = [
            record.index
            for record in named.parameter_records
            if record.requires_grad and measured.parameter(record.index) is None
        ]
        finder = CutFinder(capture, {id(named.parameters[index]): index for index in unreached})
        # Steps may share a graph, whose cuts are recorded once.
        if all(cut.graph != position.graph for cut in self._cuts):
            self._cuts += finder.records(position, self._graphs.site_of)
        called = {call.module for call in capture.modules.calls} if unreached else set()
        return {
            index: finder.reason(index)
            or _why_unreached(index in measured.reached, self._caller_of(index) in called)
            for index in unreached
        }

    def _caller_of(self, parameter: int) -> nn.Module:
        """Return the module whose call uses a parameter."""
        owner = self._named.parameter_records[parameter].module
        module, parent = self._named.modules[owner], self._named.module_records[owner].parent
        if parent is not None and isinstance(module, nn.ParameterList | nn.ParameterDict):
            module = self._named.modules[parent]  # containers, which are never called
        return module

    def _note_unmeasured(self, measured: Measurements) -> None:
        for reason, count in Counter(measured.unmeasured.values()).items():
            self.skip(f"the gradients of {count} tensors", reason)

    def _note_times(self, step: int, capture: StepCapture) -> None:
        times = (("forward", capture.forward_at), ("backward", capture.backward_at))
        for order, (kind, at) in enumerate(times):
            if at is not None:
                self._events.append(
                    EventRecord(
                        step=step,
                        order=order,
                        kind=kind,
                        seconds=at - self._began,
                        site=None,
                        numbers=(),
                    )
                )

    def finish(self, target: TargetRecord) -> Recording:
        """Return the recording of the steps so far."""
        return Recording(
            version=self._version,
            command=self._command,
            environment=self._environment,
            target=target,
            parameters=tuple(self._graphs.parameters),
            modules=tuple(self._graphs.modules),
            calls=tuple(self._graphs.calls),
            sites=tuple(self._graphs.sites),
            nodes=tuple(self._graphs.nodes),
            edges=tuple(self._graphs.edges),
            steps=tuple(self._steps),
            events=tuple(self._events),
            parameter_stats=tuple(self._parameter_stats),
            tensor_stats=tuple(self._tensor_stats),
            skipped=tuple(self._skipped),
            input_stats=tuple(self._input_stats),
            cuts=tuple(self._cuts),
            stored_gradients=tuple(self._kept),
            evidence=(
                *self._evidence,
                *sources_around(self._graphs.sites),
                *statements_around(self._graphs.sites),
            ),
        )


def parameter_stat(
    step: int,
    record: ParameterRecord,
    measured: Measurements,
    gradient: GradientStat | None,
    reason: str | None,
    update_norm: float | None,
) -> ParameterStat:
    """Return the state of a parameter after a step.

    Args:
        step: The step.
        record: The parameter.
        measured: The gradients that the step's backward delivered.
        gradient: The parameter's gradient, None if it has none.
        reason: Why it has none.
        update_norm: Norm of the update that an optimizer made.
    """
    position = record.index
    reach: Reach
    if gradient is not None:
        # The norm of a gradient with NaN is not 0, but other elements may all be zero.
        is_zero = gradient.norm == 0 and not gradient.is_broken
        reach = "zero" if is_zero else "gradient"
    elif (why := measured.why_unmeasured(position)) is not None:
        reach, reason = "gradient", why
    elif not record.requires_grad:
        reach, reason = "frozen", "it does not require grad"
    else:
        reach = "none"
    weight_norm = measured.weights[position]
    return ParameterStat(
        step=step,
        parameter=position,
        reach=reach,
        gradient=gradient,
        reason=reason,
        weight_norm=weight_norm,
        update_norm=None if weight_norm is None else update_norm,
    )


def _why_unreached(was_reached: bool, was_called: bool) -> str:
    if was_reached:
        return "backward reached it with an undefined gradient"
    if was_called:
        return "its module was called, but no path leads from the loss to it"
    return "no path leads from the loss to it, and its module was never called"


def _tensor_stats(
    step: int, capture: StepCapture, measured: Measurements, first: int
) -> Iterator[TensorStat]:
    """Yield the statistics of every distinct tensor except parameters.

    Args:
        step: The step.
        capture: The capture of the step.
        measured: The gradients that its backward delivered.
        first: The index of the graph's first node in the recording.
    """
    graph = capture.graph
    # Views have the gradient of their tensor, and parameters have statistics of their own.
    apart = set(graph.shared_gradients()) | set(capture.parameter_nodes().values())
    order = {slot: position for position, slot in enumerate(measured.arrived)}
    slots = {edge for edges in graph.successors for edge in edges} | {graph.root} | set(order)
    for slot in sorted(slots):
        if slot[0] in apart:
            continue
        gradient = measured.tensor(slot)
        reason = None
        if gradient is None:
            reason = measured.unmeasured.get(slot, NOT_DELIVERED)
        yield TensorStat(
            step=step,
            node=first + slot[0],
            slot=slot[1],
            order=order.get(slot),
            gradient=gradient,
            reason=reason,
        )
