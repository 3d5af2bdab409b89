"""Long trainings made of short ones, and what is left of them in a small recording."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gradscope.recording.evidence.training import (
    ClipScope,
    RoundedUpdate,
    RunEnding,
    SourceRecord,
    StatementRecord,
    TrainedOptimizer,
    WatchCost,
)
from gradscope.recording.meta import header_of
from gradscope.recording.norm_table import norms_of
from gradscope.recording.records import Recording
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.step_norms import rows_by_step
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge

_OWN = (SourceRecord, StatementRecord, RoundedUpdate, TrainedOptimizer, ClipScope, RunEnding)
"""Evidence that a recorder takes in its own way."""


def outcomes(recording: Recording) -> set[tuple[object, ...]]:
    """Return what the rules find, without the numbers of steps: these are estimates."""
    return {
        (one.rule, one.severity, one.location and one.location.line, one.parameters)
        for one in judge(recording).findings
    }


def repeated(recording: Recording, times: int) -> Recording:
    """Return a training whose steps are made again and again."""
    count = len(recording.steps)
    seconds = max((event.seconds for event in recording.events), default=0.0) + 1.0
    stats = list(recording.parameter_stats)
    rounded = recording.evidence_of(RoundedUpdate)
    others = tuple(one for one in recording.evidence if not isinstance(one, RoundedUpdate))
    turns = [(turn * count, turn * seconds) for turn in range(times)]
    return replace(
        recording,
        steps=tuple(
            replace(step, index=step.index + ahead)
            for ahead, _ in turns
            for step in recording.steps
        ),
        events=tuple(
            replace(event, step=event.step + ahead, seconds=event.seconds + later)
            for ahead, later in turns
            for event in recording.events
        ),
        parameter_stats=tuple(
            replace(stat, step=stat.step + ahead) for ahead, _ in turns for stat in stats
        ),
        evidence=(
            *others,
            *(replace(one, step=one.step + ahead) for ahead, _ in turns for one in rounded),
        ),
    )


def rewritten(recording: Recording, path: Path, room: Room | None) -> Recording:
    """Write a run step by step, as it was recorded, and return what is kept of it."""
    path.unlink(missing_ok=True)
    recorder = RunRecorder(path, header_of(recording), room)
    for one in run_steps(recording):
        recorder.add(one)
    ending, cost = recording.evidence_of(RunEnding), recording.evidence_of(WatchCost)
    end = recorder.close if recording.finished else recorder.abandon
    end(next(iter(ending), None), next(iter(cost), None))
    return load_recording(path)


def run_steps(recording: Recording) -> Iterator[RunStep]:
    """Yield what a recorder is given of a run: its structure, and then its steps."""
    norms = dict(rows_by_step(norms_of(recording)))
    events, rounded, captured = defaultdict(list), defaultdict(list), defaultdict(list)
    for event in recording.events:
        events[event.step].append(event)
    for one in recording.evidence_of(RoundedUpdate):
        rounded[one.step].append(one)
    for one in recording.captured_steps:
        captured[one.step].append(one)
    yield _structure(recording)
    for step in recording.steps:
        yield RunStep(
            step=step,
            events=tuple(events[step.index]),
            norms=norms.get(step.index, ()),
            rounded=tuple(rounded[step.index]),
            captured_steps=tuple(captured[step.index]),
        )


def _structure(recording: Recording) -> RunStep:
    return RunStep(
        parameters=recording.parameters,
        modules=recording.modules,
        sites=recording.sites,
        sources=recording.evidence_of(SourceRecord),
        statements=recording.evidence_of(StatementRecord),
        optimizers=tuple(enumerate(recording.evidence_of(TrainedOptimizer))),
        scopes=recording.evidence_of(ClipScope),
        skipped=recording.skipped,
        ranks=tuple(one for one in recording.evidence if not isinstance(one, (*_OWN, WatchCost))),
    )
