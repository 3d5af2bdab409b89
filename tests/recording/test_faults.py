"""Recordings whose files are removed, replaced, cut, or wanted by two trainings."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gradscope.analysis.report import Report
from gradscope.errors import GradscopeError
from gradscope.recording import writer
from gradscope.recording.meta import header_of
from gradscope.recording.paths import check_free
from gradscope.recording.run_recorder import RunRecorder
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.writer import RecordingWriter, start_log
from gradscope.rules.engine import judge
from tests.recording.recordings import same, small
from tests.recording.test_thinning import ROOM, numbers, recorder_at, run_step, written

HEADER = header_of(small())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The bytes of the recording of 300 steps."""
    path = tmp_path_factory.mktemp("whole") / "run.gradscope"
    written(path, ROOM, numbers(300))
    return path.read_bytes()


def opened(path):
    """Return the number of steps of a file, or the message that it gives."""
    try:
        recording = load_recording(path)
        Report.from_recording(recording, judge(recording))
    except GradscopeError as error:
        return str(error)
    return len(recording.steps)


def test_a_cut_file_is_one_message(run, tmp_path):
    path = tmp_path / "cut.gradscope"
    draw = random.Random(0)
    for size in (*(draw.randrange(100, len(run)) for _ in range(20)), len(run) - 4_096):
        path.write_bytes(run[:size])
        told = opened(path)
        assert told.startswith(f"cannot read `{path}`: "), size
        assert f"it is cut off: {size:,} of {len(run):,} bytes are there" in told


def test_a_damaged_file_is_one_message_or_what_is_there(run, tmp_path):
    path = tmp_path / "damaged.gradscope"
    draw, told = random.Random(0), []
    for _ in range(30):
        damaged = bytearray(run)
        start = draw.randrange(1, len(run) // 4_096) * 4_096
        damaged[start : start + 4_096] = bytes(4_096)
        path.write_bytes(damaged)
        told.append(opened(path))
    assert any(isinstance(one, str) for one in told)
    assert all(isinstance(one, int) or "cannot read" in one for one in told)


def test_a_cut_log_leaves_the_steps_before(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, ROOM)
    for step, (loss, norm) in enumerate(numbers(40)):
        recorder.add(run_step(step, loss, norm))
    # As a power cut leaves the files: the log is not whole.
    copy = tmp_path / "copy.gradscope"
    log = path.with_name(path.name + "-wal").read_bytes()
    for size in range(0, len(log), len(log) // 20):
        copy.write_bytes(path.read_bytes())
        copy.with_name(copy.name + "-shm").unlink(missing_ok=True)
        copy.with_name(copy.name + "-wal").write_bytes(log[:size])
        recording = load_recording(copy)
        assert [step.index for step in recording.steps] == list(range(len(recording.steps)))
    assert len(load_recording(path).steps) == 40
    recorder.close()


def test_a_removed_file_ends_the_recording_with_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_CHECKED", 8)
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, None)
    path.unlink()
    with pytest.raises(GradscopeError, match="it was removed or replaced"):
        for step, (loss, norm) in enumerate(numbers(8)):
            recorder.add(run_step(step, loss, norm))
    recorder.abandon()


def test_a_file_whose_name_another_took_leaves_that_one_alone(tmp_path):
    path = tmp_path / "run.gradscope"
    first = recorder_at(path, None)
    path.unlink()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    second = recorder_at(path, None)
    second.add(run_step(0, 1.0, 1.0))
    first.add(run_step(0, 2.0, 2.0))
    first.close()
    assert load_recording(path).steps[0].loss == 1.0  # its log is still there
    second.add(run_step(1, 3.0, 1.0))
    second.close()
    assert [step.loss for step in load_recording(path).steps] == [1.0, 3.0]


def test_a_file_that_is_being_written_is_not_overwritten(tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = RunRecorder(path, HEADER)
    # A process of its own, as only such has locks of its own.
    code = f"""
from pathlib import Path
from gradscope.recording.paths import check_free
check_free(Path({str(path)!r}), force=True)
"""
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert f"`{path}` is being written" in other.stderr
    recorder.close()
    check_free(path, force=True)


def test_a_file_whose_log_is_being_recovered_is_not_overwritten(tmp_path):
    path = tmp_path / "run.gradscope"
    code = f"""
import os, signal
from pathlib import Path
from gradscope.recording.run_recorder import RunRecorder
from tests.recording.test_faults import HEADER
recorder = RunRecorder(Path({str(path)!r}), HEADER)
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    # The locks that SQLite holds on its index of the log meanwhile, and the index as it is then.
    code = f"""
import fcntl
with open({str(path)!r} + "-shm", "r+b") as index:
    index.write(bytes(136))
    index.flush()
    fcntl.lockf(index, fcntl.LOCK_SH, 1, 128)
    fcntl.lockf(index, fcntl.LOCK_EX, 3, 120)
    print("held", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(GradscopeError, match="is being written"):
            check_free(path, force=True)
        other.communicate("\n")
    check_free(path, force=True)


def test_a_file_whose_writer_was_killed_within_its_first_transaction_is_read(tmp_path):
    path = tmp_path / "a.gradscope"
    save_recording(small(), path)
    # So many rows that SQLite writes some of them before the transaction ends.
    code = f"""
import os, sqlite3
base = sqlite3.connect({str(path)!r}, isolation_level=None)
base.execute("PRAGMA journal_mode = DELETE")
base.execute("PRAGMA cache_size = 2")
base.execute("BEGIN")
rows = ((f"name {{number}}", "x" * 500) for number in range(2_000))
base.executemany("INSERT INTO meta VALUES (?, ?)", rows)
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert path.with_name(path.name + "-journal").exists()
    assert same(load_recording(path), small())


def test_of_two_that_want_a_name_one_gets_it(tmp_path):
    path = tmp_path / "run.gradscope"
    for _ in range(5):
        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                try:
                    RecordingWriter(path, HEADER)
                except GradscopeError:
                    os._exit(1)
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert sorted(codes) == [0, 1, 1, 1]
        with closing(sqlite3.connect(path)) as base:
            assert base.execute("SELECT count(*) FROM meta").fetchone() == (19,)
        path.unlink()
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def test_a_new_file_waits_for_another_that_wants_its_name(tmp_path):
    path = tmp_path / "run.gradscope"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as own,
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
    ):
        own.execute("CREATE TABLE meta (name)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):  # SQLite does not wait here
            own.execute("PRAGMA journal_mode = WAL")
        timer = threading.Timer(0.2, other.execute, ["COMMIT"])
        timer.start()
        start_log(own)
        timer.join()
        assert own.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_folder_that_takes_no_file_is_one_message_before_the_training():
    # Nothing can be made in it, not even by root, whom permissions do not stop.
    with pytest.raises(GradscopeError, match=r"cannot write `?'?/proc/run\.gradscope"):
        RecordingWriter(Path("/proc/run.gradscope"), HEADER)
