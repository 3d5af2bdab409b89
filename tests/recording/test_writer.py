import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gradscope.errors import GradscopeError
from gradscope.recording.meta import Header
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import (
    GradientStat,
    ParameterStat,
    StepRecord,
)
from gradscope.recording.store import load_recording
from gradscope.recording.tables import PARAMETER_STATS, STEPS
from gradscope.recording.writer import RecordingWriter

# Runs in a process of its own too, which is killed: it writes steps until then.
WRITING = """
import sys
sys.path.insert(0, {folder!r})
from test_writer import HEADER, STEPS, PARAMETER_STATS, RecordingWriter, stat, step
writer = RecordingWriter({path!r}, HEADER)
for number in range({steps}):
    with writer.transaction():
        writer.add(STEPS, [step(number)])
        writer.add(PARAMETER_STATS, (stat(number, place) for place in range(100)))
with writer.transaction():
    writer.add(STEPS, [step({steps})])
    writer.add(PARAMETER_STATS, [stat({steps}, 0)])
    print("in the middle", flush=True)
    sys.stdin.read()
"""

HEADER = Header(
    version="0.1.0",
    command="gradscope run train.py",
    environment=Environment(
        python="3.11", torch="2.13.0", platform="Linux", device="cpu", threads=1
    ),
    target=TargetRecord(
        name="train.py",
        model="Net",
        batch="",
        loss="",
        optimizer=None,
        mode="train",
        seed=None,
        synthetic_loss=False,
        root="/tmp",
        repository="/tmp",
    ),
)


def step(number):
    return StepRecord(index=number, kind="step", graph=None, loss=1.0, optimizer=None)


def stat(number, parameter):
    gradient = GradientStat(
        numel=1_048_576,
        norm=1 / (3 + number + parameter),
        absolute_maximum=1 / (7 + number),
        zero_share=parameter / 1024,
        nonfinite=0,
        sampled=True,
        lowest_exponent=-27,
        magnitudes=(1, 1, 2, 4, 7, 15, 30, 61, 118, 205, 270, 211, 84, 14, 1),
    )
    return ParameterStat(
        step=number,
        parameter=parameter,
        reach="gradient",
        gradient=gradient,
        reason=None,
        weight_norm=1 / (11 + number + parameter),
        update_norm=1 / (13 + number + parameter),
    )


def test_finished_steps_survive_a_killed_process(tmp_path):
    path = tmp_path / "run.gradscope"
    script = WRITING.format(folder=str(Path(__file__).parent), path=str(path), steps=5)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"in the middle\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    recording = load_recording(path)
    assert [row.index for row in recording.steps] == [0, 1, 2, 3, 4]
    assert len(recording.parameter_stats) == 500


def test_recording_is_readable_while_it_is_written(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer:
        assert load_recording(path).steps == ()
        with writer.transaction():
            writer.add(STEPS, [step(0)])
            assert load_recording(path).steps == ()
        assert load_recording(path).steps == (step(0),)
        with writer.transaction():
            writer.add(STEPS, [step(1)])
        assert load_recording(path).steps == (step(0), step(1))


def test_failed_transaction_leaves_nothing_behind(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer:
        with pytest.raises(KeyboardInterrupt), writer.transaction():
            writer.add(STEPS, [step(0)])
            raise KeyboardInterrupt
        with writer.transaction():
            writer.add(STEPS, [step(7)])
    assert load_recording(path).steps == (step(7),)


def test_closed_file_leaves_no_log_and_is_read_where_nothing_can_be_written(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer, writer.transaction():
        writer.add(STEPS, [step(0)])
    assert list(tmp_path.iterdir()) == [path]
    base = sqlite3.connect(path)
    assert base.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    base.close()


def test_reader_does_not_keep_the_writer_from_finishing(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer:
        with writer.transaction():
            writer.add(STEPS, [step(0)])
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM step").fetchall()
    reader.close()
    assert load_recording(path).steps == (step(0),)


def test_log_of_a_killed_process_does_not_leak_into_a_new_file(tmp_path):
    path = tmp_path / "run.gradscope"
    script = WRITING.format(folder=str(Path(__file__).parent), path=str(path), steps=2)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.kill()
    with RecordingWriter(path, HEADER, force=True) as writer, writer.transaction():
        writer.add(STEPS, [step(9)])
    assert load_recording(path).steps == (step(9),)


def test_a_record_is_written_again(tmp_path):
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer:
        with writer.transaction():
            writer.add(STEPS, [step(0), step(1)])
        with writer.transaction():
            writer.put(STEPS, 0, step(7))
            writer.put(STEPS, 2, step(2))
            writer.add(STEPS, [step(3)])
    assert load_recording(path).steps == (step(7), step(1), step(2), step(3))


def test_writer_refuses_to_write_over_a_file(tmp_path):
    path = tmp_path / "run.gradscope"
    path.write_text("precious")
    with pytest.raises(GradscopeError, match="exists"):
        RecordingWriter(path, HEADER)
    assert path.read_text() == "precious"


def test_no_room_from_the_beginning_leaves_no_file(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(GradscopeError, match="cannot write"):
            RecordingWriter(tmp_path / "run.gradscope", HEADER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_million_parameter_steps_fit_in_200_megabytes(tmp_path):
    # The rows of 20,000 are measured: the size grows by the row.
    path = tmp_path / "run.gradscope"
    with RecordingWriter(path, HEADER) as writer:
        for number in range(100_000, 100_200):
            with writer.transaction():
                writer.add(STEPS, [step(number)])
                writer.add(PARAMETER_STATS, (stat(number, position) for position in range(100)))
    assert path.stat().st_size * 50 < 200e6
