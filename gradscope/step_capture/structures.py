"""Recognizes captured steps that repeat the graph, modules and lines of an earlier one.

New records of every node, edge and call cost more than all measurements. Therefore the data that
distinguishes structures is compared, as lists of plain numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.autograd.graph import Node

from gradscope.capture.naming import NamedModel
from gradscope.capture.source.lines import Line
from gradscope.capture.step.assemble import NOT_DELIVERED, parameter_stat
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.measurements import Measurements
from gradscope.frozen import dataclass
from gradscope.probes.optimizers import with_numbers_of
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.origin import TargetRecord
from gradscope.recording.records import (
    InputStat,
    Recording,
    TensorStat,
)
from gradscope.recording.repetitions import repeated

_MOST = 4
"""Maximum number of structures kept per line of a backward."""

Slot = tuple[int, int]


class Structure(NamedTuple):
    """The data that distinguishes structures; equal for steps that differ only in statistics."""

    parameters: tuple[object, ...]
    modules: tuple[object, ...]
    operations: list[str]
    successors: list[tuple[Slot, ...]]
    parameter_nodes: dict[int, int]
    numbers: list[int | None]
    """Sequence numbers, relative to the forward's first."""
    shapes: list[list[object]]
    calls: list[tuple[object, ...]]
    spans: tuple[list[int], list[int], list[Line | None]]
    """First numbers of each line's nodes, the numbers after the last, and the lines."""
    cuts: list[tuple[object, ...]]
    comparisons: list[tuple[object, ...]]
    optimizers: list[tuple[object, ...]]
    hooked: set[Slot]
    reached: list[int]
    """Parameters with a gradient."""


def structure_of(
    named: NamedModel,
    capture: StepCapture,
    measured: Measurements,
    optimizers: tuple[torch.optim.Optimizer, ...],
) -> Structure:
    """Return the structure of a step whose backward is finished."""
    graph, sites, first = capture.graph, capture.sites, capture.first_number
    return Structure(
        parameters=named.parameter_records,
        modules=named.module_records,
        operations=graph.operations,
        successors=graph.successors,
        parameter_nodes=capture.parameter_nodes(),
        numbers=[None if number is None else number - first for number in graph.numbers],
        shapes=[_shapes(node) for node in graph.nodes],
        calls=_calls(named, capture),
        spans=(
            [number - first for number in sites.starts],
            [number - first for number in sites.ends],
            sites.lines,
        ),
        cuts=[
            (one.operation, one.kind, one.line, one.call, one.whole_call, one.count, one.taken_out)
            for one in capture.cuts.cuts
        ],
        comparisons=[
            (one.operation, one.line, one.left, one.right, one.left_from, one.right_from)
            for one in capture.comparisons.comparisons
        ],
        optimizers=[
            # By identity, because `==` of tensors compares their elements.
            (id(one), [[id(tensor) for tensor in group["params"]] for group in one.param_groups])
            for one in optimizers
        ],
        hooked=graph.hooked,
        reached=[i for i in range(len(named.parameters)) if measured.has_gradient(i)],
    )


def _shapes(node: Node) -> list[object]:
    return [
        None if metadata.is_nested_tensor else (metadata.shape, metadata.dtype)
        for metadata in node._input_metadata
    ]


def _calls(named: NamedModel, capture: StepCapture) -> list[tuple[object, ...]]:
    locations: dict[object, int] = {
        module: position for position, module in enumerate(named.modules)
    }
    first = capture.first_number
    return [
        (
            # Losses outside the model are often made anew for each step.
            locations.get(call.module, type(call.module)),
            call.parent,
            call.line,
            # Relative numbers: the counter goes on from step to step.
            call.start - first,
            None if call.end is None else call.end - first,
        )
        for call in capture.modules.calls
    ]


@dataclass(frozen=True, slots=True)
class Known:
    """A captured step that later ones may repeat."""

    structure: Structure
    recording: Recording
    number: int
    """Index among the captured steps of the run."""
    slots: frozenset[Slot]
    """Slots of all tensors whose gradient was to be measured."""

    def again(
        self,
        measured: Measurements,
        optimizers: tuple[torch.optim.Optimizer, ...],
        target: TargetRecord,
        loss: float | None,
    ) -> tuple[Recording, tuple[object, ...]]:
        """Return the recording of a step that repeats it, and its own evidence."""
        known = self.recording
        evidence = tuple(_changed(known.evidence_of(OptimizerRecord), optimizers))
        own = replace(
            known,
            target=target,
            steps=tuple(replace(step, loss=loss) for step in known.steps),
            events=(),
            parameter_stats=tuple(
                parameter_stat(0, parameter, measured, measured.parameter(i), stat.reason, None)
                for i, (parameter, stat) in enumerate(
                    zip(known.parameters, known.parameter_stats, strict=True)
                )
            ),
            tensor_stats=tuple(self._tensor_stats(measured)),
            input_stats=tuple(
                InputStat(step=0, call=call, position=order, norm=norm)
                for call, order, norm in measured.shares()
            ),
            evidence=evidence,
        )
        return repeated(known, own), evidence

    def _tensor_stats(self, measured: Measurements) -> Iterator[TensorStat]:
        order = {slot: position for position, slot in enumerate(measured.arrived)}
        for stat in self.recording.tensor_stats:
            slot = (stat.node, stat.slot)
            gradient = measured.tensor(slot)
            yield TensorStat(
                step=0,
                node=stat.node,
                slot=stat.slot,
                order=order.get(slot),
                gradient=gradient,
                reason=None if gradient is not None else stat.reason or NOT_DELIVERED,
            )


def _changed(
    records: tuple[OptimizerRecord, ...], optimizers: tuple[torch.optim.Optimizer, ...]
) -> Iterator[OptimizerRecord]:
    """Yield the settings of optimizers that changed, such as a learning rate."""
    pairs = zip(records, optimizers, strict=True)
    now = [with_numbers_of(record, optimizer) for record, optimizer in pairs]
    # `with_numbers_of` returns the record itself where nothing changed.
    if any(one is not record for one, record in zip(now, records, strict=True)):
        yield from now


class Structures:
    """The structures of the last captured steps, by the line of their backward."""

    def __init__(self) -> None:
        self._known: dict[object, list[Known]] = {}

    def has_any(self, line: object) -> bool:
        """Return whether a backward at a line is known."""
        return line in self._known

    def like(
        self,
        line: object,
        structure: Structure,
        measured: Measurements,
        loss: float | None,
    ) -> Known | None:
        """Return a step that the finished one repeats, None if it must be recorded in full."""
        plain = [one for one in (loss, *measured.weights) if one is not None]
        is_finite = measured.numbers.is_finite and all(map(math.isfinite, plain))
        # A step with a problem needs its full record, which a repetition does not have.
        if measured.unmeasured or not is_finite:
            return None
        return next(
            (
                one
                for one in self._known.get(line, ())
                if one.structure == structure and one.slots.issuperset(measured.arrived)
            ),
            None,
        )

    def keep(self, line: object, structure: Structure, recording: Recording, number: int) -> None:
        """Store the structure of a step, in place of an equal one."""
        slots = {(stat.node, stat.slot) for stat in recording.tensor_stats}
        slots |= {(node, 0) for node in structure.parameter_nodes.values()}
        known = [one for one in self._known.get(line, ()) if one.structure != structure]
        found = Known(structure, recording, number, frozenset(slots))
        self._known[line] = [found, *known][:_MOST]
