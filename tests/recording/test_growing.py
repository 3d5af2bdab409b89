"""Reads additions to a recording while it is being written."""

import sqlite3
from array import array
from dataclasses import replace

import pytest

from gradscope.recording.growing import GrowingRecording
from gradscope.recording.meta import header_of
from gradscope.recording.records import GradientStat
from gradscope.recording.repetitions import RepeatedSteps
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.store import save_recording
from tests.rules.accumulation.runs import Run

KINDS = ("step", "clip-norm")


@pytest.fixture
def recording():
    run = Run()
    weights = run.model("model", 3)
    first = run.optimizer(weights[:2], "Adam", line=3)
    second = run.optimizer(weights[2:], "SGD", line=4)
    for turn in range(6):
        run.backward(weights, line=10, loss=float(turn))
        run.event("clip-norm", 12, max_norm=1.0, norm=3.0, parameters=3, fresh=3)
        run.step(second if turn % 3 == 2 else first, line=13)
    return run.recording()


def steps_of(recording):
    """Each step as a recorder takes it; parameters and modules come with the first one."""
    for step in recording.steps:
        is_first = step.index == 0
        yield RunStep(
            step=step,
            events=tuple(event for event in recording.events if event.step == step.index),
            norms=[
                (
                    stat.parameter,
                    stat.reach,
                    None if stat.gradient is None else stat.gradient.norm,
                    stat.weight_norm,
                    stat.update_norm,
                )
                for stat in recording.parameter_stats
                if stat.step == step.index
            ],
            parameters=recording.parameters if is_first else (),
            modules=recording.modules if is_first else (),
            sites=recording.sites if is_first else (),
            optimizers=tuple(enumerate(recording.evidence)) if is_first else (),
        )


def test_reading_after_every_step_gives_everything_once(recording, tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, header_of(recording))
    growing = GrowingRecording(path, KINDS)
    grown = [growing.read()]
    for step in steps_of(recording):
        recorder.add(step)
        grown.append(growing.read())
    recorder.close()
    grown.append(growing.read())
    wanted = tuple(event for event in recording.events if event.kind in KINDS)
    assert [len(one.steps) for one in grown] == [0, *[1] * 6, 0]
    assert tuple(step for one in grown for step in one.steps) == recording.steps
    assert tuple(event for one in grown for event in one.events) == wanted
    assert tuple(item for one in grown for item in one.parameters) == recording.parameters
    assert tuple(item for one in grown for item in one.modules) == recording.modules
    assert grown[-1].optimizers == recording.evidence
    assert [one.header.finished for one in grown] == [*[False] * 7, True]
    assert list(tmp_path.iterdir()) == [path]  # no reader has kept the file from being finished


@pytest.mark.parametrize("is_source_known", [True, False])
def test_losses_of_repeated_steps_are_read(recording, tmp_path, is_source_known):
    """The kinds that are asked for need not include the backward passes, which have the losses."""
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, header_of(recording))
    growing = GrowingRecording(path, KINDS)
    recorder.add(next(steps_of(recording)))
    if is_source_known:
        growing.read()
    recorder.repeat(
        RepeatedSteps(
            first=1,
            sources=(0,),
            choices=array("H", [0, 0]).tobytes(),
            losses=array("d", [5.0, 4.0]).tobytes(),
            rates=array("d", [0.5, 0.25]).tobytes(),
            began=1.0,
            ended=3.0,
        )
    )
    grown = growing.read()
    recorder.close()
    assert [step.loss for step in grown.steps if step.index] == [5.0, 4.0]
    assert {event.kind for event in grown.events} == set(KINDS)


def test_last_norm_of_each_parameter_is_read(recording, tmp_path):
    path = tmp_path / "run.gradscope"
    norms = {}
    for position, stat in enumerate(recording.parameter_stats):
        norms[stat.step, stat.parameter] = float(position)
    stats = tuple(
        replace(stat, gradient=_gradient(norms[stat.step, stat.parameter]))
        for stat in recording.parameter_stats
    )
    save_recording(replace(recording, parameter_stats=stats), path)
    growing = GrowingRecording(path, KINDS)
    last = {parameter: norm for (_, parameter), norm in sorted(norms.items())}
    assert growing.read().norms == last
    assert growing.read().norms == {}


def test_parameter_without_a_gradient_has_no_norm(recording, tmp_path):
    path = tmp_path / "run.gradscope"
    stats = tuple(
        replace(stat, reach="none", gradient=None, reason="it had no gradient")
        for stat in recording.parameter_stats
    )
    save_recording(replace(recording, parameter_stats=stats), path)
    norms = GrowingRecording(path, KINDS).read().norms
    assert norms and set(norms.values()) == {None}


def test_file_that_is_none_raises(tmp_path):
    (tmp_path / "text").write_text("no recording at all")
    for name in ("missing", "text"):
        with pytest.raises(sqlite3.Error):
            GrowingRecording(tmp_path / name, KINDS).read()


def _gradient(norm):
    return GradientStat(
        numel=4, norm=norm, absolute_maximum=norm, zero_share=0.0, nonfinite=0, sampled=False
    )
