"""Captured steps are stored in a run's file, completely or not at all."""

import dataclasses
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gradscope.errors import GradscopeError
from gradscope.recording.evidence import EVIDENCE
from gradscope.recording.meta import header_of
from gradscope.recording.records import (
    CapturedStep,
    ModuleCallRecord,
    NodeRecord,
    Shape,
    Site,
    StepRecord,
    TensorRef,
    TensorStat,
)
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.writer import RecordingWriter
from tests.recording.recordings import gradient, round_trip, same, small, stat
from tests.recording.strategies import least

# Runs in a process of its own, which is killed in the middle of a step.
WRITING = """
import sys
sys.path.insert(0, {root!r})
from tests.recording.test_captured_steps import *
recorder = RunRecorder(Path({path!r}), header_of(small()))
for number in range(3):
    recorder.add(RunStep(step=step(number), captured_steps=(look(number), look(number, order=4))))
with recorder._writer.transaction():
    recorder._writer.add_captured_step(look(3))
    print("in the middle", flush=True)
    sys.stdin.read()
"""


def step(number):
    return StepRecord(index=number, kind="run", graph=None, loss=1.0, optimizer="SGD(lr=0.1)")


def look(number, *, order=0, loss="cross_entropy"):
    """One linear layer, of which one tensor was measured."""
    inspected = small()
    node = NodeRecord(
        index=0,
        graph=0,
        operation="AddmmBackward0",
        kind="operation",
        depth=0,
        sequence=7,
        module_call=0,
        site=0,
        outputs=(Shape(dims=(4, 8), dtype="float32"),),
        parameter=None,
    )
    call = ModuleCallRecord(
        index=0,
        graph=0,
        module=0,
        call=0,
        parent=None,
        site=0,
        inputs=(),
        outputs=(TensorRef(node=0, slot=0),),
    )
    tensor = TensorStat(
        step=0, node=0, slot=0, order=0, gradient=gradient(number + 0.5), reason=None
    )
    recording = dataclasses.replace(
        inspected,
        target=dataclasses.replace(inspected.target, loss=loss),
        sites=(Site(file="/code/train.py", line=12, function="train", source="loss.backward()"),),
        calls=(call,),
        nodes=(node,),
        parameter_stats=(stat(0, 0, gradient(float(number))),),
        tensor_stats=(tensor,),
        evidence=tuple(least(kind) for kind in EVIDENCE),
    )
    return CapturedStep(step=number, order=order, recording=recording)


def run_of(*captured_steps):
    return dataclasses.replace(
        small(), steps=(step(0), step(1)), parameter_stats=(), captured_steps=captured_steps
    )


def tables(path):
    with closing(sqlite3.connect(path)) as base:
        return {name for (name,) in base.execute("SELECT name FROM sqlite_master")}


def test_captured_steps_come_back_each_with_its_own_records(tmp_path):
    empty = dataclasses.replace(look(1), recording=dataclasses.replace(small(), parameters=()))
    run = run_of(look(0), empty, look(1, order=3, loss="mse_loss"))
    assert same(round_trip(run, tmp_path / "run.gradscope").captured_steps, run.captured_steps)


def test_files_without_looks_have_no_tables_for_them(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    assert load_recording(path).captured_steps == ()
    assert not [name for name in tables(path) if name.startswith("look")]


def test_captured_steps_of_finished_steps_survive_a_killed_process(tmp_path):
    path = tmp_path / "run.gradscope"
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", WRITING.format(root=root, path=str(path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"in the middle\n"
        process.send_signal(signal.SIGKILL)
    run = load_recording(path)
    assert not run.finished
    expected = tuple(look(number, order=order) for number in range(3) for order in (0, 4))
    assert same(run.captured_steps, expected)


def test_captured_steps_are_read_while_the_run_goes_on(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, header_of(small()))
    recorder.add(RunStep(step=step(0)))
    assert load_recording(path).captured_steps == ()
    recorder.add(RunStep(step=step(1), captured_steps=(look(1),)))
    assert same(load_recording(path).captured_steps, (look(1),))
    recorder.describe(model="Other", batch="", optimizer=None)
    recorder.close()
    finished = load_recording(path)
    assert finished.target.model == "Other"
    assert same(finished.captured_steps, (look(1),))


def test_failed_step_takes_its_looks_and_their_tables_back(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, header_of(small())) as writer:
        with pytest.raises(KeyboardInterrupt), writer.transaction():
            writer.add_captured_step(look(0))
            raise KeyboardInterrupt
        assert "look" not in tables(path)
        with writer.transaction():
            writer.add_captured_step(look(1))
            writer.add_captured_step(look(2))
    assert same(load_recording(path).captured_steps, (look(1), look(2)))


def test_a_full_disk_is_one_error_and_keeps_the_steps_before(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, header_of(small()))
    recorder.add(RunStep(step=step(0), captured_steps=(look(0),)))
    pages = recorder._writer._connection.execute("PRAGMA page_count").fetchone()[0]
    recorder._writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(GradscopeError, match=r"cannot write .* full"):
        recorder.add(RunStep(step=step(1), captured_steps=(look(1),) * 50))
    recorder.abandon()
    run = load_recording(path)
    assert run.steps == (step(0),)
    assert same(run.captured_steps, (look(0),))


def test_captured_steps_are_read_at_the_sqlite_prompt(tmp_path):
    path = tmp_path / "run.gradscope"
    save_recording(run_of(look(0), look(1, loss="mse_loss")), path)
    with closing(sqlite3.connect(path)) as base:
        captured_steps = base.execute("SELECT id, step, place, model, loss FROM look").fetchall()
        parameters = base.execute(
            "SELECT look, step, name, norm FROM look_parameter_gradient"
        ).fetchall()
        tensors = base.execute(
            "SELECT look, step, operation, line, norm FROM look_tensor_gradient"
        ).fetchall()
    assert captured_steps == [(0, 0, 0, "Linear", "cross_entropy"), (1, 1, 0, "Linear", "mse_loss")]
    assert parameters == [(0, 0, "weight", 0.0), (1, 1, "weight", 1.0)]
    assert tensors == [(0, 0, "AddmmBackward0", 12, 0.5), (1, 1, "AddmmBackward0", 12, 1.5)]


def test_a_capture_lacks_what_its_version_did_not_know(tmp_path):
    path = tmp_path / "old.gradscope"
    save_recording(run_of(look(0)), path)
    with closing(sqlite3.connect(path)) as base:
        for kind in EVIDENCE:
            base.execute(f"DROP TABLE look_{kind.table}")
        base.commit()
    assert load_recording(path).captured_steps[0].recording.evidence == ()
