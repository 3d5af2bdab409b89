"""Logits, experts and the training on one batch in JSON."""

import json
from importlib.resources import files

import jsonschema
import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.report import Report
from gradscope.report.json.report import LINES, render_json, report_object
from gradscope.report.json.shape import lines_of
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.report.test_attention import Mixed, trained

SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())


def written(report):
    value = json.loads(render_json(report))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def test_logits_and_experts_of_captured_steps(tmp_path):
    value = written(trained(Mixed(), (20, 3, 8), tmp_path))
    by_kind = {one["kind"]: one for one in value["logits"]}
    attention, output = by_kind["attention"], by_kind["output"]
    assert attention["module"].endswith("attention")
    assert [(one["step"], len(one["largest"]), one["log_z"]) for one in attention["steps"]] == [
        (0, 2, None),
        (1, 2, None),
    ]
    assert all(one["log_z"] > 0 for one in output["steps"])
    assert output["location"]["file"].endswith("test_attention.py")
    (experts,) = value["experts"]
    assert (experts["chosen"], experts["experts"]) == (2, 4)
    for step in experts["steps"]:
        assert step["rows"] == 60
        assert step["shares"][3] == 0.0
        assert sum(step["shares"]) == pytest.approx(1)
    assert value["overfit"] is None
    assert value["training_run"]["loss_text"] == ""


def test_a_classifier_has_the_logits_of_its_outputs_alone(tmp_path):
    value = written(trained(nn.Linear(8, 8), (60, 8), tmp_path))
    assert [one["kind"] for one in value["logits"]] == ["output"]
    assert value["experts"] == []


def test_the_training_on_one_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    model[0].bias.requires_grad_(False)
    batch = (torch.randn(8, 4), torch.arange(8) % 3)
    target = target_from_objects(model, batch, functional.cross_entropy)
    report = Report.from_recording(
        record(target, trial=Trial(overfit=5), eager=False, command="gradscope inspect m.py")
    )
    found = written(report)["overfit"]
    assert (found["steps"], found["wanted_steps"], found["outcome"]) == (5, 5, "still falling")
    assert len(found["losses"]) == 6
    assert found["losses"][0] == pytest.approx(report.summary.loss)
    assert found["moved"]["0.bias"] is None
    assert found["moved"]["0.weight"] > 0
    assert (found["unmoved"], found["stuck_since"]) == ([], None)
    kinds = [kind for kind, _ in lines_of(report_object(report), LINES)]
    assert kinds.count("overfit") == 1
