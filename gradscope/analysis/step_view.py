"""One step of a recording, indexed for joining."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.norm_table import NormTable
from gradscope.recording.records import (
    NodeRecord,
    ParameterStat,
    Recording,
    StepRecord,
    TensorRef,
    TensorStat,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step of a recording, indexed for joining."""

    recording: Recording
    step: StepRecord | None
    parameter_stats: dict[int, ParameterStat]
    """By parameter."""
    tensor_stats: dict[TensorRef, TensorStat]
    input_norms: dict[tuple[int, int], float | None]
    """By module call and place among its inputs, where an input is used elsewhere too; None where
    the call made no use of it."""
    nodes: tuple[NodeRecord, ...]
    """Nodes of the step's graph."""

    def measured(self, ref: TensorRef) -> TensorRef:
        """Return the tensor that this one shares its gradient with, itself where with none."""
        shared = self.recording.nodes[ref.node].same_as
        while shared is not None:
            ref = shared
            shared = self.recording.nodes[ref.node].same_as
        return ref


def first_step(recording: Recording) -> StepView:
    """Return the step that is judged; an empty view where there is none.

    It is the first that neither led up to it nor probed on from there.
    """
    return step_view(recording, next((s for s in recording.steps if s.kind == "step"), None))


def last_run_step(recording: Recording) -> StepView:
    """Return the last step of a training run, with what was measured last of each parameter.

    Optimizers take turns, and not every step is measured.
    """
    steps = [step for step in recording.steps if step.kind == "run"]
    finished = [step for step in steps if step.optimizer is not None] or steps
    view = step_view(recording, finished[-1] if finished else None)
    stats = recording.parameter_stats
    last = {parameter: row for row, parameter in enumerate(_parameters_of(stats))}
    return replace(
        view,
        parameter_stats={parameter: stats[row] for parameter, row in last.items()},
        nodes=view.nodes if view.step and view.step.graph is not None else (),
    )


def ended_by(recording: Recording) -> AutogradErrorRecord | None:
    """Return the exception that ended the judged step, None where it came to its end."""
    judged = first_step(recording).step
    errors = recording.evidence_of(AutogradErrorRecord)
    return next((error for error in errors if judged and error.step == judged.index), None)


def step_view(recording: Recording, step: StepRecord | None) -> StepView:
    """Return one step; an empty view for None."""
    number, graph = (None, None) if step is None else (step.index, step.graph)
    return StepView(
        recording=recording,
        step=step,
        parameter_stats={stat.parameter: stat for stat in _stats_of(recording, number)},
        tensor_stats={
            TensorRef(node=stat.node, slot=stat.slot): stat
            for stat in recording.tensor_stats
            if stat.step == number
        },
        input_norms={
            (stat.call, stat.position): stat.norm
            for stat in recording.input_stats
            if stat.step == number
        },
        nodes=tuple(node for node in recording.nodes if node.graph == graph),
    )


def _stats_of(recording: Recording, step: int | None) -> Iterable[ParameterStat]:
    stats = recording.parameter_stats
    if step is None:
        return ()
    if isinstance(stats, NormTable):
        return map(stats.__getitem__, stats.rows_of(step))
    return (stat for stat in stats if stat.step == step)


def _parameters_of(stats: Sequence[ParameterStat]) -> Iterable[int]:
    return stats.parameters if isinstance(stats, NormTable) else (one.parameter for one in stats)


def created(node: NodeRecord) -> int:
    """Return when the forward made a node; leaves were there before."""
    return -1 if node.sequence is None else node.sequence
