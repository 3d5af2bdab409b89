"""CSV and JSON Lines hold what the recording does, as the csv and json modules read them."""

import csv
import io
import json
import math
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.export.files import write_csv, write_jsonl
from gradscope.export.table import ExportTable
from gradscope.export.tables import TABLES
from gradscope.report.json.shape import finite
from tests.export.conftest import HOSTILE
from tests.nightly import some_on_push


def written(write, name, report):
    stream = io.StringIO(newline="")
    table = TABLES[name]
    write(table, table.rows(report), stream)
    return stream.getvalue()


def csv_rows(name, report):
    return list(csv.DictReader(io.StringIO(written(write_csv, name, report), newline="")))


def json_rows(name, report):
    return [json.loads(line) for line in written(write_jsonl, name, report).splitlines()]


def number(cell):
    return None if cell == "" else float(cell)


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


def test_steps_of_a_run_are_those_of_its_report(run_report):
    rows = csv_rows("steps", run_report)
    run = run_report.training_run
    assert len(rows) == 12
    for row, step in zip(rows, run.steps, strict=True):
        assert (int(row["step"]), row["kind"]) == (step.step, "run")
        for name, value in (
            ("loss", step.loss),
            ("grad_norm", step.grad_norm),
            ("grad_norm_before_clip", step.norm_before_clip),
            ("learning_rate", step.learning_rate),
            ("update_ratio", step.update_ratio),
            ("seconds", step.seconds),
        ):
            assert number(row[name]) == value
    assert [row["optimizer"] for row in rows] == ["slow", "fast"] * 6
    assert {row["learning_rate"] for row in rows} == {"0.01", "0.1"}


@pytest.mark.parametrize("read", [csv_rows, json_rows])
def test_parameters_of_a_run_are_those_of_its_recording(read, run_report):
    recording = run_report.recording
    rows = read("parameters", run_report)
    assert len(rows) == len(recording.parameter_stats) == 6 * (4 + 2)
    for row, stat in zip(rows, recording.parameter_stats, strict=True):
        record = recording.parameters[stat.parameter]
        assert (int(row["step"]), row["parameter"], row["reach"]) == (
            stat.step,
            record.name,
            stat.reach,
        )
        assert row["module"] == record.name.rpartition(".")[0]
        assert int(row["numel"]) == record.numel
        assert float(row["grad_norm"]) == stat.gradient.norm
        assert float(row["weight_norm"]) == stat.weight_norm
        # In a run nothing but norms is measured, which is not the same as NaN.
        assert row["grad_absolute_maximum"] in ("", None)
        update = None if row["update_norm"] in ("", None) else float(row["update_norm"])
        assert update == stat.update_norm


def test_parameters_of_an_inspection_tell_why_there_is_no_gradient(inspected):
    rows = csv_rows("parameters", inspected)
    stats = inspected.recording.parameter_stats
    assert len(rows) == len(stats) == 6 * 3
    for row, stat in zip(rows, stats, strict=True):
        gradient = stat.gradient
        assert number(row["grad_norm"]) == (gradient and gradient.norm)
        assert number(row["grad_absolute_maximum"]) == (gradient and gradient.absolute_maximum)
        assert number(row["grad_zero_share"]) == (gradient and gradient.zero_share)
        assert row["reason"] == (stat.reason or "")
    unused = [row for row in rows if row["parameter"].startswith("unused")]
    assert len(unused) == 6 and all(row["grad_norm"] == "" for row in unused)


def test_steps_of_an_inspection_are_told_apart(inspected):
    rows = csv_rows("steps", inspected)
    assert [row["kind"] for row in rows] == ["training", "step", "probe"]
    assert [number(row["loss"]) for row in rows] == [s.loss for s in inspected.recording.steps]
    assert number(rows[1]["grad_norm"]) == inspected.summary.grad_norm


def test_tensors_are_those_of_the_inspection_and_of_close_looks(inspected, run_report):
    rows = json_rows("tensors", inspected)
    recording = inspected.recording
    assert len(rows) == len(recording.tensor_stats)
    for row, stat in zip(rows, recording.tensor_stats, strict=True):
        node = recording.nodes[stat.node]
        assert (row["look"], row["step"], row["operation"]) == (None, stat.step, node.operation)
        assert row["shape"] == list(node.outputs[stat.slot].dims)
        assert row["grad_norm"] == stat.gradient.norm
    captured_steps = run_report.recording.captured_steps
    rows = json_rows("tensors", run_report)
    assert len(rows) == sum(len(look.recording.tensor_stats) for look in captured_steps) > 0
    assert {(row["look"], row["step"]) for row in rows} == {
        (position, look.step) for position, look in enumerate(captured_steps)
    }
    assert {row["module"] for row in rows} >= {"body.2.0", "head"}


def test_modules_and_events_are_those_of_the_report(run_report):
    rows = json_rows("modules", run_report)
    assert [row["module"] for row in rows] == [row.path for row in run_report.modules]
    assert [row["grad_norm"] for row in rows] == [row.grad_norm for row in run_report.modules]
    events = json_rows("events", run_report)
    assert [(one["step"], one["order"], one["event"]) for one in events] == [
        (event.step, event.order, event.kind) for event in run_report.recording.events
    ]
    assert [one["numbers"] for one in events] == [dict(e.numbers) for e in run_report.events]
    backward = next(one for one in events if one["event"] == "backward")
    assert backward["source"].endswith("cross_entropy(head(body(x)), y).backward()")


@pytest.mark.parametrize("name", TABLES)
def test_hostile_names_and_odd_numbers_come_back(name, odd):
    table, kinds = TABLES[name], dict(TABLES[name].columns)
    expected = [dict(zip(table.names, row, strict=True)) for row in table.rows(odd)]
    rows = csv_rows(name, odd)
    assert len(rows) == len(expected)
    for row, cells in zip(rows, expected, strict=True):
        for column, value in cells.items():
            kind = kinds[column]
            if value is None:
                assert row[column] == ""
            elif kind == "number":
                assert same(float(row[column]), float(value))
            elif kind == "integer":
                assert int(row[column]) == value
            elif kind == "text":
                assert row[column] == value
            elif kind == "flag":
                assert row[column] == str(value).lower()
            else:
                json.loads(row[column], parse_constant=pytest.fail)


CELLS = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(),
    "text": st.text(st.characters(exclude_categories=("Cs",)), min_size=1),
    "flag": st.booleans(),
    "json": st.lists(st.floats() | st.text()) | st.dictionaries(st.text(), st.floats()),
}
MIXED = ExportTable(name="mixed", columns=tuple((kind, kind) for kind in CELLS), rows=iter)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(*(st.none() | cells for cells in CELLS.values()))))
def test_any_cell_comes_back(rows):
    stream = io.StringIO(newline="")
    write_csv(MIXED, rows, stream)
    read = list(csv.reader(io.StringIO(stream.getvalue(), newline="")))
    assert read[0] == list(CELLS) and len(read) == len(rows) + 1
    for (integer, number, text, flag, nested), cells in zip(rows, read[1:], strict=True):
        assert cells[0] == ("" if integer is None else str(integer))
        assert cells[1] == "" if number is None else same(float(cells[1]), number)
        assert cells[2] == (text or "")
        assert cells[3] == {None: "", True: "true", False: "false"}[flag]
        assert cells[4] == "" if nested is None else json.loads(cells[4]) == finite(nested)
    stream = io.StringIO(newline="")
    write_jsonl(MIXED, rows, stream)
    lines = stream.getvalue().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        finite(dict(zip(CELLS, row, strict=True))) for row in rows
    ]


@pytest.mark.parametrize("write", some_on_push([write_csv, write_jsonl], 2))
def test_rows_are_written_as_they_come(write):
    """However many there are: nothing is gathered."""
    rows = ((position, 0.5, "name", True, None) for position in range(20_000))
    with Path(os.devnull).open("w") as nowhere:
        tracemalloc.start()
        write(MIXED, rows, nowhere)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 200_000


def test_what_is_not_finite_has_a_name_in_each_form(odd):
    rows = csv_rows("parameters", odd)
    assert [row["grad_norm"] for row in rows] == ["NaN", "inf", "0.0", "", *["1e-300"] * 4]
    assert [row["parameter"] for row in rows] == list(HOSTILE)
    rows = json_rows("parameters", odd)
    assert [row["update_norm"] for row in rows][:4] == ["NaN", "Infinity", 0.0, None]
    (event,) = json_rows("events", odd)
    assert event["numbers"] == {"loss": "NaN", "norm": "-Infinity", "x\n": 1.0}
    (finding,) = json_rows("findings", odd)
    assert finding["parameters"] == list(HOSTILE)
    assert finding["evidence"] == {"norm": "NaN", "what": "a\nb", "limit": None}


def test_findings_are_those_of_the_rules(inspected):
    rows = json_rows("findings", inspected)
    assert [(row["rule"], row["message"]) for row in rows] == [
        (one.rule, one.message) for one in inspected.findings
    ]
    assert "GS203" in {row["rule"] for row in rows}


def test_optimizers_of_one_name_are_told_apart(run_report):
    run = run_report.training_run
    rows = tuple(replace(row, name="optimizer") for row in run.optimizers)
    alike = replace(run_report, training_run=replace(run, optimizers=rows))
    names = [row["optimizer"] for row in csv_rows("steps", alike)]
    assert names == ["optimizer 1", "optimizer 2"] * 6
