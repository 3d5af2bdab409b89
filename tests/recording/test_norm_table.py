"""A run's norms in columns equal the records that were written."""

import dataclasses
import math
import sqlite3
import struct
import tracemalloc
from array import array
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradscope.analysis.recording_index import last_run_step, step_view
from gradscope.recording.meta import header_of
from gradscope.recording.norm_table import (
    NOT_MEASURED,
    NormTable,
    are_unmeasured,
    measured_in,
    norms_of,
)
from gradscope.recording.records import GradientStat, StepRecord
from gradscope.recording.run_recorder import RunRecorder, RunStep
from gradscope.recording.store import load_recording, save_recording
from tests.recording.recordings import same, small

NORMS = st.floats(min_value=0.0) | st.just(math.nan)
ROWS = st.lists(
    st.lists(
        st.tuples(
            st.just(0),
            st.sampled_from(["gradient", "zero", "none", "frozen"]),
            st.none() | NORMS,
            NORMS,
            st.none() | NORMS,
        ),
        max_size=3,
    ),
    max_size=4,
)


def run_file(path, steps):
    """Write a run as it is watched: by step, the parameter, reach and norms of each row."""
    path.unlink(missing_ok=True)
    recorder = RunRecorder(path, header_of(small()))
    recorder.add(RunStep(parameters=small().parameters))
    for number, rows in enumerate(steps):
        step = StepRecord(index=number, kind="run", graph=None, loss=None, optimizer="SGD(lr=0.1)")
        recorder.add(RunStep(step=step, norms=rows))
    recorder.close()
    return load_recording(path)


def told(stat):
    """Return what a record says, as it was written."""
    norm = None if stat.gradient is None else stat.gradient.norm
    return (stat.parameter, stat.reach, norm, stat.weight_norm, stat.update_norm)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=ROWS)
def test_norms_come_back_as_they_were_measured(steps, tmp_path):
    run = run_file(tmp_path / "run.gradscope", steps)
    table = norms_of(run)
    for number, rows in enumerate(steps):
        found = tuple(told(table[row]) for row in table.rows_of(number))
        assert same(found, tuple(rows))
    assert len(table) == sum(map(len, steps))


@pytest.mark.nightly
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=ROWS)
def test_columns_are_those_of_the_records(steps, tmp_path):
    run = run_file(tmp_path / "run.gradscope", steps)
    as_records = dataclasses.replace(run, parameter_stats=tuple(run.parameter_stats))
    assert same(tuple(norms_of(as_records)), tuple(run.parameter_stats))


def test_a_loaded_run_is_saved_again(tmp_path):
    steps = [[(0, "gradient", 0.5, 2.0, None)], [(0, "none", None, 2.0, 0.25)]]
    run = run_file(tmp_path / "run.gradscope", steps)
    save_recording(run, tmp_path / "again.gradscope")
    again = load_recording(tmp_path / "again.gradscope")
    assert same(tuple(again.parameter_stats), tuple(run.parameter_stats))


def test_a_table_is_a_sequence_of_records(tmp_path):
    steps = [[(0, "gradient", float(n), 2.0, None)] for n in range(5)]
    table = run_file(tmp_path / "run.gradscope", steps).parameter_stats
    records = list(table)
    assert isinstance(table, NormTable) and isinstance(table, Sequence)
    assert len(table) == 5 and bool(table)
    assert [table[n].gradient.norm for n in (0, -1)] == [0.0, 4.0]
    assert [one.step for one in table[1:3]] == [1, 2]
    assert [one.step for one in table[::-2]] == [4, 2, 0]
    assert [one.step for one in reversed(table)] == [4, 3, 2, 1, 0]
    assert records[0].gradient == GradientStat(numel=32, norm=0.0)
    assert records[0].gradient.is_zero
    assert not records[0].gradient.is_broken
    with pytest.raises(IndexError):
        table[5]


def test_norms_that_are_broken_missing_or_zero_are_distinguished(tmp_path):
    steps = [
        [(0, "gradient", math.nan, 1.0, math.nan)],
        [(0, "gradient", math.inf, math.inf, 0.0)],
        [(0, "zero", 0.0, 0.0, None)],
        [(0, "none", None, math.nan, None)],
    ]
    nan, infinite, zero, none = run_file(tmp_path / "run.gradscope", steps).parameter_stats
    assert math.isnan(nan.gradient.norm) and nan.gradient.is_broken
    assert math.isnan(nan.update_norm)
    assert infinite.gradient.norm == math.inf and infinite.gradient.is_broken
    assert infinite.update_norm == 0.0
    assert zero.gradient.norm == 0.0 and zero.update_norm is None and zero.reason is None
    assert none.gradient is None and none.reason == "it had no gradient"
    assert math.isnan(none.weight_norm)


def test_the_last_norm_of_each_parameter_is_what_a_run_ends_with(tmp_path):
    steps = [[(0, "gradient", 1.0, 2.0, None)], [(0, "gradient", 3.0, 2.0, None)], []]
    run = run_file(tmp_path / "run.gradscope", steps)
    assert last_run_step(run).parameter_stats[0].gradient.norm == 3.0
    assert step_view(run, run.steps[0]).parameter_stats[0].gradient.norm == 1.0
    assert step_view(run, run.steps[2]).parameter_stats == {}


def test_the_sqlite3_shell_sees_the_norms_of_a_run(tmp_path):
    norms = [1.0, 0.1, 5e-324, 1.7976931348623157e308, 2.5e-310, 0.0, math.inf, math.nan]
    steps = [[(0, "gradient", norm, norm, None)] for norm in norms]
    path = tmp_path / "run.gradscope"
    run_file(path, [*steps, [(0, "none", None, 2.0, 0.25)]])
    with closing(sqlite3.connect(path)) as base:
        found = base.execute(
            "SELECT step, name, reach, norm, weight_norm, update_norm, reason "
            "FROM parameter_gradient ORDER BY step"
        ).fetchall()
    *measured, missing = found
    name = small().parameters[0].name
    told = ["NaN" if math.isnan(norm) else norm for norm in norms]
    assert measured == [
        (step, name, "gradient", norm, norm, None, None) for step, norm in enumerate(told)
    ]
    assert missing == (len(norms), name, "none", None, 2.0, 0.25, "it had no gradient")


def test_a_run_without_a_measured_step_has_no_norms(tmp_path):
    run = run_file(tmp_path / "run.gradscope", [[]])
    assert tuple(run.parameter_stats) == ()
    assert last_run_step(run).parameter_stats == {}


def test_runs_with_the_same_norms_are_equal(tmp_path):
    def run(norm):
        return run_file(tmp_path / "run.gradscope", [[(0, "gradient", norm, 2.0, None)]])

    assert run(0.5) == run(0.5)
    assert run(0.5) != run(0.25)


def test_a_million_norms_fit_in_little_memory(tmp_path):
    # The rows of 20,000 are measured: what they take grows by the row.
    rows = [(0, "gradient", 0.5 + position, 2.0, 0.1) for position in range(100)]
    path = tmp_path / "run.gradscope"
    run_file(path, [rows] * 200)
    before = load_recording(path)  # what is imported and remembered once
    tracemalloc.start()
    table = load_recording(path).parameter_stats
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == len(before.parameter_stats) == 20_000
    assert size * 50 < 60e6


def test_measured_norms_are_told_by_their_bytes():
    # The bytes of the end of one and the beginning of the other are those of a missing norm.
    tiny, odd = struct.unpack("<2d", bytes((1, 1, 0, 0, 0, 0, 0, 0, 0xF0, 0xBF, 1, 1, 1, 1, 1, 63)))
    assert list(measured_in(array("d", [tiny, odd]))) == [tiny, odd]
    assert list(measured_in([0.5, NOT_MEASURED, 0.0])) == [0.5, 0.0]
    assert are_unmeasured(array("d", [NOT_MEASURED, NOT_MEASURED]))
    assert are_unmeasured([]) and not are_unmeasured([NOT_MEASURED, 0.0])
    broken = measured_in(array("d", [math.nan, NOT_MEASURED, math.inf]))
    assert math.isnan(broken[0]) and list(broken[1:]) == [math.inf]
