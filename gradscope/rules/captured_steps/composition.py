"""Composes a captured step and its run into the recording of an inspection."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.recording.records import (
    CapturedStep,
    InputStat,
    ParameterStat,
    Recording,
    StepRecord,
    TensorStat,
)
from gradscope.rules.captured_steps.training import Stepper, Training

PROBES = 3
"""Number of later captured steps that take the part of an inspection's probing steps."""


@dataclass(frozen=True)
class Sight:
    """A captured step, with the facts by which similar ones are recognized."""

    captured: CapturedStep

    @property
    def recording(self) -> Recording:
        """Recording of this backward alone."""
        return self.captured.recording

    @cached_property
    def step(self) -> StepRecord | None:
        """Record of the step; None if an exception ended it before it was recorded."""
        return next((step for step in self.recording.steps if step.kind == "step"), None)

    @cached_property
    def reached(self) -> frozenset[str]:
        """Names of the parameters in its graph."""
        recording = self.recording
        return frozenset(
            recording.parameters[node.parameter].name
            for node in recording.nodes
            if node.parameter is not None
        )

    @cached_property
    def graph(self) -> int:
        """Hash that is equal for graphs of the same operations, edges and parameters."""
        recording = self.recording
        names = [record.name for record in recording.parameters]
        nodes = tuple(
            (node.operation, None if node.parameter is None else names[node.parameter])
            for node in recording.nodes
        )
        edges = tuple((edge.source, edge.target, edge.slot) for edge in recording.edges)
        return hash((nodes, edges))


def composed(sight: Sight, later: Sequence[Sight], training: Training) -> Recording:
    """Return a captured step as the recording of an inspection.

    Later captured steps of the same backward take the part of probing steps. If the graph of one
    differs, only its parameters are comparable.

    Args:
        sight: The captured step.
        later: Later captured steps of the same line.
        training: The run.
    """
    recording = sight.recording
    probes = list(_probes(sight, later))
    first = sight.step
    return replace(
        recording,
        target=replace(recording.target, optimizer=training.optimizer_text(sight.captured)),
        steps=(*([] if first is None else [first]), *(one.step for one in probes)),
        parameter_stats=(
            *_with_updates(sight, training),
            *(stat for one in probes for stat in one.parameter_stats),
        ),
        tensor_stats=(
            *recording.tensor_stats,
            *(stat for one in probes for stat in one.tensor_stats),
        ),
        input_stats=(
            *recording.input_stats,
            *(stat for one in probes for stat in one.input_stats),
        ),
        evidence=tuple(_evidence(sight, training)),
    )


@dataclass(frozen=True, slots=True)
class _Probe:
    """Records of a later captured step, numbered like those of the first."""

    step: StepRecord
    parameter_stats: tuple[ParameterStat, ...]
    tensor_stats: tuple[TensorStat, ...]
    input_stats: tuple[InputStat, ...]


def _probes(sight: Sight, later: Sequence[Sight]) -> Iterator[_Probe]:
    first = sight.step
    number = 0 if first is None else first.index
    known = {record.name: record.index for record in sight.recording.parameters}
    alike = [one for one in later if one.graph == sight.graph]
    for other in (alike or list(later))[:PROBES]:
        step = other.step
        if step is None:
            continue
        number += 1
        is_alike = other.graph == sight.graph
        yield _Probe(
            step=StepRecord(
                index=number,
                kind="probe",
                graph=first.graph if is_alike and first is not None else None,
                loss=step.loss,
                optimizer=step.optimizer,
            ),
            parameter_stats=tuple(_parameter_stats(other, known, number)),
            tensor_stats=tuple(
                replace(stat, step=number)
                for stat in (other.recording.tensor_stats if is_alike else ())
            ),
            input_stats=tuple(
                replace(stat, step=number)
                for stat in (other.recording.input_stats if is_alike else ())
            ),
        )


def _parameter_stats(other: Sight, known: dict[str, int], number: int) -> Iterator[ParameterStat]:
    records = other.recording.parameters
    for stat in other.recording.parameter_stats:
        position = known.get(records[stat.parameter].name)
        if position is not None:
            yield replace(stat, step=number, parameter=position)


def _with_updates(sight: Sight, training: Training) -> Iterator[ParameterStat]:
    """Yield the parameters' gradients after the backward, and the updates that followed."""
    updates = training.updates(sight.captured)
    records = sight.recording.parameters
    for stat in sight.recording.parameter_stats:
        yield replace(stat, update_norm=updates.get(records[stat.parameter].name))


def _evidence(sight: Sight, training: Training) -> Iterator[object]:
    """Yield the evidence of the probes. The optimizer that steps counts as the target's."""
    records = sight.recording.evidence_of(OptimizerRecord)
    stepping = _stepping(sight, records, training)
    for one in sight.recording.evidence:
        if not isinstance(one, OptimizerRecord):
            yield one
        elif one in stepping:
            yield replace(one, is_targets=one is stepping[0])
        else:  # its stale parameters have nothing to do with this backward
            yield replace(one, is_targets=False, stale=())


def _stepping(
    sight: Sight, records: Iterable[OptimizerRecord], training: Training
) -> list[OptimizerRecord]:
    """Return the optimizers that step after the backward, ordered by parameters it reached."""
    steppers = list(training.steppers(sight.captured))
    reached = {
        stat.parameter
        for stat in sight.recording.parameter_stats
        if stat.reach in ("gradient", "zero")
    }
    found = [record for record in records if any(_is_same(sight, record, one) for one in steppers)]
    return sorted(found, key=lambda record: (-len(record.parameters & reached), -record.index))


def _is_same(sight: Sight, record: OptimizerRecord, stepper: Stepper) -> bool:
    """Return whether a captured optimizer is one of the run; a trainer's has its own line."""
    if record.class_name != stepper.class_name:
        return False
    held = {sight.recording.parameters[index].name for index in record.parameters}
    if held and stepper.parameters:
        return not held.isdisjoint(stepper.parameters)
    site = None if record.site is None else sight.recording.sites[record.site]
    return site == stepper.site
