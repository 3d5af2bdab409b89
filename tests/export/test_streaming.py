"""Tables of a long run are read from its file a few steps at a time, and are the same."""

import json
import tracemalloc
from dataclasses import replace

import pytest

from gradscope.cli import main
from gradscope.export.scalars import scalars
from gradscope.export.tables import TABLES
from gradscope.recording.evidence.ranks import RankIdentity
from gradscope.recording.paths import continuation_of
from gradscope.recording.records import CapturedStep
from gradscope.recording.store import load_recording, save_recording
from gradscope.recording.streaming import RunInFile
from gradscope.session.report import Report
from tests.recording.recordings import small
from tests.recording.test_thinning import (
    ROOM,
    numbers,
    recorder_at,
    repeated_run,
    repeating,
    run_step,
    written,
)
from tests.rules.accumulation.runs import Run

LEAST = {"tensors": -1, "ranks": -1, "modules": 0}
"""Number of rows that recordings have more of, where that is few."""
STREAMED = [name for name, table in TABLES.items() if table.streamed is not None]


def both(name, path):
    """Rows of a table from the file, and from the recording in memory."""
    run, table = RunInFile.of(path), TABLES[name]
    assert run is not None
    assert run.is_in_order or not table.needs_order
    whole = table.rows(Report.from_recording(load_recording(path)))
    return list(table.streamed(run)), list(whole)


@pytest.mark.parametrize("name", STREAMED)
def test_rows_are_those_of_the_whole_recording(name, tmp_path, run_report):
    repeated_run(tmp_path / "repeated.gradscope", None)
    written(tmp_path / "plain.gradscope", None, numbers(300))
    if not TABLES[name].needs_order:
        written(tmp_path / "kept.gradscope", ROOM, numbers(1_000))
        repeated_run(tmp_path / "kept_repeated.gradscope", ROOM)
        assert not RunInFile.of(tmp_path / "kept.gradscope").is_in_order
    save_recording(run_report.recording, tmp_path / "turns.gradscope")
    for path in sorted(tmp_path.iterdir()):
        streamed, whole = both(name, path)
        assert streamed == whole and len(whole) > LEAST.get(name, 10)


def test_curves_are_those_of_the_whole_recording(tmp_path, run_report):
    repeated_run(tmp_path / "repeated.gradscope", None)
    save_recording(run_report.recording, tmp_path / "turns.gradscope")
    for path in sorted(tmp_path.iterdir()):
        streamed = list(scalars(RunInFile.of(path)))
        assert streamed == list(scalars(Report.from_recording(load_recording(path))))
        assert len(streamed) > 10 and all(one.values for one in streamed)


def accumulating(path, parts, turns):
    """Save a run of steps of several micro-batches, whose script divides the losses of these."""
    run = Run()
    model = run.model("model", 2)
    optimizer = run.optimizer(model, "SGD", line=3, name="optimizer")
    for turn in range(turns):
        for part in range(parts):
            run.backward(model, line=10, loss=turn + part / 8, rows=4, divided=float(parts))
        run.step(optimizer, line=11, norm=1.0 + turn, lr=0.1 / (1 + turn))
        run.zero(optimizer, line=12)
    save_recording(run.recording(), path)


@pytest.mark.parametrize("parts", [1, 4])
def test_losses_of_micro_batches_and_titles_are_the_same(parts, tmp_path):
    accumulating(tmp_path / "run.gradscope", parts, 30)
    streamed, whole = both("steps", tmp_path / "run.gradscope")
    assert streamed == whole
    assert [row[3] for row in whole] == pytest.approx(
        [turn * parts + sum(range(parts)) / 8 for turn in range(30)]
    )


def test_tensors_of_captured_steps_are_read_without_the_run(
    tmp_path, monkeypatch, run_report, inspected
):
    step, path = inspected.recording, tmp_path / "run.gradscope"
    captured = tuple(CapturedStep(step=number, order=1, recording=step) for number in (1, 3))
    save_recording(replace(run_report.recording, captured_steps=captured), path)
    monkeypatch.setattr("gradscope.recording.streaming.norm_tables", None)
    monkeypatch.setattr("gradscope.recording.streaming.events_in_order", None)
    streamed, whole = both("tensors", path)
    assert streamed == whole
    assert len(step.tensor_stats) > 5
    assert [row[:2] for row in whole] == [
        place for place in enumerate((1, 3)) for _ in step.tensor_stats
    ]


@pytest.mark.parametrize("name", STREAMED)
def test_a_run_that_ended_between_steps_is_the_same(name, tmp_path):
    path = tmp_path / "run.gradscope"
    recorder = recorder_at(path, None)
    recorder.add(run_step(0, 1.0, 1.0))
    recorder.repeat(repeating(1, 3))
    recorder.add(run_step(4, 1.0, 1.0))
    recorder.repeat(repeating(5, 2, 4))
    recorder.close()
    streamed, whole = both(name, path)
    assert streamed == whole


def test_memory_does_not_grow_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("gradscope.recording.streaming.BATCH", 64)
    monkeypatch.setattr("gradscope.recording.streaming._NORMS", 64)
    peaks = [peak(tmp_path / f"{steps}.gradscope", steps) for steps in (1_000, 6_000)]
    assert peaks[1] < 2 * peaks[0]


def peak(path, steps):
    recorder = recorder_at(path, None)
    for step in range(0, steps, 10):
        recorder.add(run_step(step, 1.0, 1.0))
        recorder.repeat(repeating(step + 1, 9, step))
    recorder.close()
    run = RunInFile.of(path)
    tracemalloc.start()
    rows = sum(1 for name in STREAMED for _ in TABLES[name].streamed(run))
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    modules, parameters = len(run.structure.modules), len(run.structure.parameters)
    assert rows == modules + 4 * steps + parameters * steps // 10
    return found


def test_what_is_not_in_order_is_read_as_a_whole(tmp_path):
    save_recording(small(), tmp_path / "step.gradscope")
    assert RunInFile.of(tmp_path / "step.gradscope") is None
    path = tmp_path / "resumed.gradscope"
    written(path, None, numbers(5))
    assert RunInFile.of(path) is not None
    continuation_of(path).write_bytes(b"a part")
    assert RunInFile.of(path) is None


@pytest.mark.parametrize("name", STREAMED)
def test_a_table_alone_is_streamed_and_one_of_several_is_not(
    name, tmp_path, monkeypatch, capsysbinary, run_report
):
    monkeypatch.chdir(tmp_path)
    save_recording(run_report.recording, tmp_path / "run.gradscope")
    export(monkeypatch, "run.gradscope", "--to", "csv", "-o", "tables")
    capsysbinary.readouterr()
    monkeypatch.setattr("gradscope.recording.store.load_recording", None)
    export(monkeypatch, "run.gradscope", "--to", "csv", "--table", name)
    assert capsysbinary.readouterr().out == (tmp_path / "tables" / f"{name}.csv").read_bytes()


def export(monkeypatch, *arguments, code=0):
    monkeypatch.setattr("sys.argv", ["gradscope", "export", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code


def saved_job(folder, count, job="a"):
    """Save the recordings of the ranks of a job, whose norms and losses differ."""
    for rank in range(count):
        run = Run()
        model = run.model("model", 2)
        optimizer = run.optimizer(model, "SGD", line=3, name="optimizer")
        for turn in range(4):
            run.backward(model, line=10, loss=turn + rank / 8, rows=4)
            run.step(optimizer, line=11, norm=1.0 + turn + rank, lr=0.1)
            run.zero(optimizer, line=12)
        identity = RankIdentity(
            rank=rank, local_rank=rank, world_size=count, backend="gloo", job=job, host="here",
            started=float(rank), clock=0.0,
        )  # fmt: skip
        made = run.recording()
        made = replace(made, evidence=(*made.evidence, identity))
        save_recording(made, folder / f"{job}.rank{rank}.gradscope")


def test_ranks_are_read_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved_job(tmp_path, 3)
    files = sorted(map(str, tmp_path.glob("a.rank*")))
    whole = Report.of_job([load_recording(path) for path in files])
    expected = list(TABLES["ranks"].rows(whole))
    monkeypatch.setattr("gradscope.cli.rank_recordings.read_jobs", None)
    monkeypatch.setattr("gradscope.cli.export.read_jobs", None)
    export(monkeypatch, *reversed(files), "--to", "jsonl", "--table", "ranks")
    rows = [tuple(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()]
    assert rows == expected
    assert {(step, rank, loss) for step, rank, loss, *_ in rows} >= {(0, 0, 0.0), (3, 2, 3.25)}


def test_tables_of_a_large_job_are_those_of_its_first_rank(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved_job(tmp_path, 3)
    monkeypatch.setattr("gradscope.cli.rank_recordings._READ_WHOLE", 2)
    monkeypatch.setattr("gradscope.cli.export.read_jobs", None)
    export(monkeypatch, ".", "--to", "csv", "--table", "steps")
    of_job = capsys.readouterr().out
    export(monkeypatch, "a.rank0.gradscope", "--to", "csv", "--table", "steps")
    assert capsys.readouterr().out == of_job
    assert len(of_job.splitlines()) == 5


def test_missing_ranks_are_told_and_other_jobs_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved_job(tmp_path, 3)
    (tmp_path / "a.rank1.gradscope").unlink()
    export(monkeypatch, ".", "--to", "csv", "--table", "ranks")
    told = capsys.readouterr()
    assert "no recording of rank 1 of 3 was given" in told.err
    assert len(told.out.splitlines()) == 1 + 2 * 4
    saved_job(tmp_path, 2, job="b")
    export(monkeypatch, "a.rank0.gradscope", "b.rank1.gradscope", "--to", "csv", "-o", "x", code=2)
    assert "are ranks of different jobs" in capsys.readouterr().err
    accumulating(tmp_path / "alone.gradscope", 1, 3)
    export(monkeypatch, "a.rank0.gradscope", "alone.gradscope", "--to", "csv", "-o", "x", code=2)
    assert "are not of one job" in capsys.readouterr().err
