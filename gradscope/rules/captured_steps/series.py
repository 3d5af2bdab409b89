"""The captured steps of one backward of a script, each combined with facts of the run."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import ProbeName, ProbeRecord
from gradscope.recording.evidence.failures import (
    AutogradErrorRecord,
    FlushRecord,
    LateCapture,
    NonfiniteRecord,
)
from gradscope.recording.evidence.forward import SaturationRecord, UnitRecord
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.records import (
    CapturedStep,
    InputStat,
    ParameterStat,
    Recording,
    StepRecord,
    TensorStat,
)
from gradscope.rules.captured_steps.training import Stepper, Training
from gradscope.rules.context import RuleContext

_FUNCTIONS: ProbeName = "custom functions"

PROBES = 3
"""Number of later captured steps that serve as an inspection's probe steps."""


@dataclass(frozen=True)
class StepFacts:
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
        # Captured steps number their parameters each for itself: names are the same in all.
        names = [record.name for record in recording.parameters]
        nodes = tuple(
            (node.operation, None if node.parameter is None else names[node.parameter])
            for node in recording.nodes
        )
        edges = tuple((edge.source, edge.target, edge.slot) for edge in recording.edges)
        return hash((nodes, edges))


def composed(facts: StepFacts, later: Sequence[StepFacts], training: Training) -> Recording:
    """Return a captured step as the recording of an inspection.

    Later captured steps of the same backward take the part of probing steps. If the graph of one
    differs, only its parameters are comparable.

    Args:
        facts: The captured step.
        later: Later captured steps of the same line.
        training: The run.
    """
    recording = facts.recording
    probes = list(_probes(facts, later))
    functions, sites = training.functions_of(recording)
    first = facts.step
    return replace(
        recording,
        target=replace(recording.target, optimizer=training.optimizer_text(facts.captured)),
        steps=(*([] if first is None else [first]), *(one.step for one in probes)),
        parameter_stats=(
            *_with_updates(facts, training),
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
        sites=(*recording.sites, *sites),
        evidence=(*_evidence(facts, training, bool(functions)), *functions),
    )


@dataclass(frozen=True, slots=True)
class _Probe:
    """Records of a later captured step, numbered like those of the first."""

    step: StepRecord
    parameter_stats: tuple[ParameterStat, ...]
    tensor_stats: tuple[TensorStat, ...]
    input_stats: tuple[InputStat, ...]


def _probes(facts: StepFacts, later: Sequence[StepFacts]) -> Iterator[_Probe]:
    first = facts.step
    number = 0 if first is None else first.index
    known = {record.name: record.index for record in facts.recording.parameters}
    alike = [one for one in later if one.graph == facts.graph]
    for other in (alike or list(later))[:PROBES]:
        step = other.step
        if step is None:
            continue
        number += 1
        is_alike = other.graph == facts.graph
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


def _parameter_stats(
    other: StepFacts, known: dict[str, int], number: int
) -> Iterator[ParameterStat]:
    records = other.recording.parameters
    for stat in other.recording.parameter_stats:
        position = known.get(records[stat.parameter].name)
        if position is not None:
            yield replace(stat, step=number, parameter=position)


def _with_updates(facts: StepFacts, training: Training) -> Iterator[ParameterStat]:
    """Yield the parameters' gradients after the backward, and the updates that followed."""
    updates = training.updates(facts.captured)
    records = facts.recording.parameters
    for stat in facts.recording.parameter_stats:
        update, has_gradient = updates.get(records[stat.parameter].name, (None, False))
        # A parameter that is frozen for this backward alone may have the gradient of another one.
        is_of_another = stat.reach == "frozen" and has_gradient
        yield replace(stat, update_norm=None if is_of_another else update)


def _evidence(facts: StepFacts, training: Training, has_functions: bool) -> Iterator[object]:
    """Yield the evidence of the probes. The optimizer that steps counts as the target's."""
    records = facts.recording.evidence_of(OptimizerRecord)
    stepping = _stepping(facts, records, training)
    for one in facts.recording.evidence:
        if has_functions and isinstance(one, ProbeRecord) and one.name == _FUNCTIONS:
            yield replace(one, skip_reason=None)
        elif not isinstance(one, OptimizerRecord):
            yield one
        elif one in stepping:
            # Rules judge one optimizer in detail: that of most parameters which this backward
            # reached.
            yield replace(one, is_targets=one is stepping[0])
        else:  # its stale parameters have nothing to do with this backward
            yield replace(one, is_targets=False, stale=())


def _stepping(
    facts: StepFacts, records: Iterable[OptimizerRecord], training: Training
) -> list[OptimizerRecord]:
    """Return the optimizers that step after the backward, ordered by parameters it reached."""
    steppers = list(training.steppers(facts.captured))
    reached = {
        stat.parameter
        for stat in facts.recording.parameter_stats
        if stat.reach in ("gradient", "zero")
    }
    found = [record for record in records if any(_is_same(facts, record, one) for one in steppers)]
    # Of equals, the one that was made last may have replaced the others.
    return sorted(found, key=lambda record: (-len(record.parameters & reached), -record.index))


def _is_same(facts: StepFacts, record: OptimizerRecord, stepper: Stepper) -> bool:
    """Return whether a captured optimizer is one of the run; a trainer's has its own line."""
    if record.class_name != stepper.class_name:
        return False
    held = {facts.recording.parameters[index].name for index in record.parameters}
    if held and stepper.parameters:
        return not held.isdisjoint(stepper.parameters)
    site = None if record.site is None else facts.recording.sites[record.site]
    return site == stepper.site


_FIRST = 4
"""Number of first captured steps that are always judged: most trainings go wrong at the start."""

_MOST = 12
"""Largest number of captured steps that are judged, besides the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A captured step with its context, ready for the rules."""

    context: RuleContext
    step: int
    """Step of the run."""
    stands_for: int
    """Number of captured steps that this one represents: itself, and later ones with equal counts.
    """


@dataclass(frozen=True)
class Series:
    """The captured steps of one backward of the script, in order."""

    step_facts: tuple[StepFacts, ...]
    training: Training
    is_late: bool = False
    """Whether their forwards were not observed. Most of what rules read is missing then."""

    @property
    def is_untrained(self) -> bool:
        """Whether no optimizer step follows any backward of the run.

        A backward that raised may have been meant for a step.
        """
        return self.training.is_untrained and not _has_raised(self.step_facts[0])

    @cached_property
    def judged(self) -> tuple[JudgedStep, ...]:
        """The captured steps that are judged."""
        whole = [
            position for position, one in enumerate(self.step_facts) if one.captured.same_as is None
        ]
        chosen = _chosen([_state(facts) for facts in self.step_facts], whole[-1:])
        ends = [*chosen[1:], len(self.step_facts)]
        return tuple(
            JudgedStep(
                context=self._case(position),
                step=self.step_facts[position].captured.step,
                stands_for=end - position,
            )
            for position, end in zip(chosen, ends, strict=True)
        )

    def _case(self, position: int) -> RuleContext:
        facts = self.step_facts[position]
        # Without a step in between, another backward does not show whether a state lasts.
        later = () if self.is_untrained else self.step_facts[position + 1 :]
        return RuleContext(
            composed(facts, later, self.training),
            run=self.training.surroundings(facts.captured),
            step=facts.captured.step,
            measurements=self.training.context.measurements,
        )


def series_of(training: Training) -> tuple[Series, ...]:
    """Return the captured steps of a run, grouped by the line of their backward.

    Steps that raised are a series of their own, and so are those captured after their forward. If
    nothing is trained, captured steps of different models do not continue each other.
    """
    groups: dict[tuple[object, bool, bool, object], list[StepFacts]] = {}
    for captured in training.recording.captured_steps:
        facts = StepFacts(captured)
        model = facts.reached if training.is_untrained else None
        is_late = bool(captured.recording.evidence_of(LateCapture))
        key = (training.line(captured), _has_raised(facts), is_late, model)
        groups.setdefault(key, []).append(facts)
    return tuple(
        Series(tuple(step_facts), training, is_late=is_late)
        for (_, _, is_late, _), step_facts in groups.items()
    )


def _has_raised(facts: StepFacts) -> bool:
    return bool(facts.recording.evidence_of(AutogradErrorRecord))


def _chosen(states: Sequence[object], wanted: Collection[int]) -> list[int]:
    """Return the positions of the captured steps to judge: the first, those that differ, the last.

    Args:
        states: State of each captured step. A step with a new state is judged separately.
        wanted: Further positions to choose, such as that of the last step measured in full.
    """
    seen: set[object] = set()
    chosen: list[int] = []
    for position, state in enumerate(states):
        is_new = state not in seen
        seen.add(state)
        is_last = position == len(states) - 1 or position in wanted
        if position < _FIRST or (is_new and len(chosen) < _MOST) or is_last:
            chosen.append(position)
    return chosen


def _state(facts: StepFacts) -> object:
    """Return a value that differs for captured steps that have to be judged separately."""
    is_whole = facts.captured.same_as is None
    return (facts.graph, *_numbers(facts), *(_counts(facts) if is_whole else ()))


def _numbers(facts: StepFacts) -> Iterator[object]:
    recording = facts.recording
    step = facts.step
    yield step is None or step.loss is None or math.isfinite(step.loss)
    yield tuple(
        (stat.reach, bool(stat.gradient and stat.gradient.is_broken))
        for stat in recording.parameter_stats
    )


def _counts(facts: StepFacts) -> Iterator[object]:
    recording = facts.recording
    yield tuple(record.requires_grad for record in recording.parameters)
    # Only coarse parts of the shares that rules judge: small changes make no new state.
    yield tuple(int(10 * one.inactive / one.units) for one in recording.evidence_of(UnitRecord))
    yield tuple(
        2 * one.saturated >= one.elements for one in recording.evidence_of(SaturationRecord)
    )
    yield tuple(
        10 * one.flushed // max(one.elements, 1) for one in recording.evidence_of(FlushRecord)
    )
    yield tuple(
        (one.class_name, len(one.parameters), len(one.stale))
        for one in recording.evidence_of(OptimizerRecord)
    )
    yield len(recording.evidence_of(NonfiniteRecord))
