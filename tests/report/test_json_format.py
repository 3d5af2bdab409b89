import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from gradscope.recording.finding import Finding, RelatedLocation, Verdict
from gradscope.recording.records import Site
from gradscope.recording.store import load_recording
from gradscope.report.json.report import LINES, render_json, report_object
from gradscope.report.json.shape import lines_of, lines_text
from gradscope.session.report import Report

SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())


def valid(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def finding(**changes):
    values = {
        "rule": "GS201",
        "name": "gradient-cut",
        "severity": "error",
        "message": "0.weight gets no gradient",
        "location": Site(
            file="/home/user/project/train.py", line=14, function="<module>", source="x.detach()"
        ),
        "related": (
            RelatedLocation(file="/home/user/project/train.py", line=13, message="the last"),
        ),
        "parameters": ("0.weight",),
        "modules": ("0",),
        "step": 0,
        "evidence": (("parameters_cut", 2), ("ratio", float("inf")), ("why", "detach")),
        "remedy": "remove it",
        "fingerprint": "abc",
    }
    return Finding(**(values | changes))


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_schema_refuses_what_it_does_not_know(report):
    value = valid(render_json(report))
    value["parameters"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)
    value = valid(render_json(report))
    value["parameters"][0]["gradient"]["norm"] = "nan"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)


def test_json_has_the_parts_of_the_interface(report):
    value = valid(report.to_json())
    assert value["schema_version"] == "1.0"
    assert value["tool"] == {"name": "gradscope", "version": "0.1.0"}
    assert list(value) == [
        "schema_version", "tool", "command", "environment", "target", "summary", "parameters",
        "modules", "tensors", "graph", "events", "clipping", "accumulation", "overfit",
        "logits", "experts", "training", "probes", "skipped", "rules", "findings", "next",
    ]  # fmt: skip
    assert value["rules"] == {"ran": [], "skipped": []}
    assert value["findings"] == []


def test_json_holds_the_numbers_of_the_report(report):
    value = valid(render_json(report))
    weight = value["parameters"][0]
    assert (weight["name"], weight["gradient"]["norm"], weight["grad_to_weight"]) == (
        "first.weight", 3.0, 0.3,
    )  # fmt: skip
    assert weight["location"]["file"] == "model.py"
    act = value["modules"][2]
    assert (act["path"], act["parent"], act["calls"][0]["gain"]) == ("act", "", 0.5)
    assert act["calls"][0]["location"]["line"] == 12
    relu = value["tensors"][1]
    assert relu["location"]["file"] == "/opt/elsewhere/act.py"
    assert (relu["shape"], relu["gradient"]["norm"]) == ([8, 2], 8.0)
    assert value["graph"]["operations"]["AddmmBackward0"] == 2
    assert value["graph"]["widest"] == {"depth": 2, "nodes": 3}
    assert value["summary"]["parameters"]["requires_grad"] == 4
    assert value["probes"][0]["parameters"]["first.weight"] == 1.0
    assert value["probes"][0]["parameters"]["first.bias"] is None
    assert value["events"][0]["numbers"] == {"loss": 1.5}


def test_missing_zero_and_broken_are_three_different_values(hostile_report):
    rows = {row["name"]: row for row in valid(render_json(hostile_report))["parameters"]}
    assert rows["head.scale.factor"]["gradient"] is None
    assert rows["last.bias"]["gradient"]["norm"] == 0.0
    assert rows["m[/x].weight"]["gradient"]["norm"] == "NaN"
    assert rows["m<script>alert(1)</script>.weight"]["gradient"]["norm"] == "Infinity"


def test_hostile_names_come_back_unchanged_and_send_nothing_to_a_terminal(
    hostile_report, hostile_recording
):
    text = render_json(hostile_report)
    assert "\x1b" not in text and "\u202e" not in text
    names = [row["name"] for row in valid(text)["parameters"]]
    assert names == [row.name for row in hostile_recording.parameters]


def test_report_without_a_step_is_valid(recording):
    bare = replace(
        recording, steps=(), parameter_stats=(), tensor_stats=(), nodes=(), edges=(), calls=()
    )
    assert valid(render_json(Report.from_recording(bare)))["graph"]["widest"] is None


def test_findings_are_valid_and_shown_relative_to_the_root(recording):
    report = Report.from_recording(
        recording, Verdict(findings=(finding(), finding(location=None, step=None)))
    )
    first, second = valid(render_json(report))["findings"]
    assert first["location"]["file"] == "train.py"
    assert first["related"][0]["file"] == "train.py"
    assert first["evidence"] == {"parameters_cut": 2, "ratio": "Infinity", "why": "detach"}
    assert second["location"] is None


def test_json_is_the_same_each_time_and_after_a_round_trip(hostile_recording, tmp_path):
    plain = replace(
        hostile_recording,
        parameters=hostile_recording.parameters[:-1],
        parameter_stats=hostile_recording.parameter_stats[:-1],
        modules=hostile_recording.modules[:-1],
    )  # half a surrogate pair is the one thing that a file cannot keep
    report = Report.from_recording(plain)
    report.save(tmp_path / "a.gradscope")
    again = Report.from_recording(load_recording(tmp_path / "a.gradscope"))
    assert render_json(report) == render_json(report) == render_json(again)


def test_json_has_a_row_a_line(report):
    lines = render_json(report).splitlines()
    assert sum(line.startswith('  {"name": ') for line in lines) == 5


def test_json_lines_name_their_kind(hostile_recording):
    report = Report.from_recording(hostile_recording, Verdict(findings=(finding(),)))
    lines = [
        json.loads(line) for line in lines_text(lines_of(report_object(report), LINES)).split("\n")
    ]
    kinds = [line["kind"] for line in lines]
    assert kinds[:3] == ["meta", "summary", "graph"]
    assert kinds.count("parameter") == len(report.parameters)
    assert kinds.count("tensor") == len(report.tensors)
    assert set(kinds) == {
        "meta", "summary", "graph", "parameter", "module", "tensor", "event", "probe", "skipped",
        "rules", "finding",
    }  # fmt: skip


def test_json_lines_hold_the_rows_of_the_json_report(hostile_report):
    whole = valid(render_json(hostile_report))
    lines = [
        json.loads(line)
        for line in lines_text(lines_of(report_object(hostile_report), LINES)).split("\n")
    ]
    for kind, part in [("parameter", "parameters"), ("module", "modules"), ("tensor", "tensors")]:
        rows = [line for line in lines if line["kind"] == kind]
        assert rows == [{"kind": kind, **row} for row in whole[part]]
