"""Steps before the judged one in recordings, reports and rules."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from gradscope.analysis.recording_index import RecordingIndex, first_step
from gradscope.analysis.view import ViewOptions
from gradscope.recording.store import load_recording, save_recording
from gradscope.report.finding_phrasing import training_text
from gradscope.report.json.report import LINES, render_json, report_object
from gradscope.report.json.shape import lines_of, lines_text
from gradscope.report.render import render
from gradscope.rules.engine import judge
from gradscope.session.inspection import record
from gradscope.session.report import Report
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.report.test_json_format import valid
from tests.training.looping import watched

X = torch.linspace(-1, 1, 24).view(8, 3)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.idle = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(x)


def squares(model, batch):
    return model(batch).square().mean()


@pytest.fixture(scope="module")
def recording():
    return watched(Branches(), None, squares, batch=X, steps=3, probe_steps=2)


def words(report):
    return training_text(report, "->", lambda value: "none" if value is None else f"{value:g}")


def test_recording_comes_back_from_its_file(recording, tmp_path):
    save_recording(recording, tmp_path / "a.gradscope")
    loaded = load_recording(tmp_path / "a.gradscope")
    assert replace(loaded, evidence=()) == replace(recording, evidence=())
    assert judge(loaded) == judge(recording)


def test_judged_step_probes_and_training_are_distinguished(recording):
    indexed = RecordingIndex(recording)
    assert indexed.judged == 3
    assert [view.step.index for view in indexed.probes] == [4, 5]
    assert first_step(recording).parameter_stats.keys() == {0, 1, 2, 3}
    assert {stat.step for stat in recording.tensor_stats} == {3, 4, 5}
    assert all(step.graph is None for step in recording.steps[:3])
    assert len({node.graph for node in recording.nodes}) == 1


def test_parameters_of_training_steps_have_numbers_or_a_reason(recording):
    stats = [stat for stat in recording.parameter_stats if stat.step == 1]
    assert [stat.reach for stat in stats] == ["gradient", "gradient", "none", "none"]
    assert all(stat.gradient.magnitudes == () for stat in stats[:2])
    assert all(stat.reason for stat in stats[2:])


def test_findings_tell_the_judged_step(recording):
    findings = judge(recording).findings
    assert {finding.rule for finding in findings} == {"GS203"}
    assert {finding.step for finding in findings} == {3}


def lines_in(report):
    return lines_text(lines_of(report_object(report), LINES)).splitlines()


def test_report_has_the_numbers_of_every_step(recording):
    report = Report.from_recording(recording)
    assert report.summary.step == 3
    losses = [step.loss for step in recording.steps]
    assert [step.loss for step in report.training] == losses[:3]
    assert [step.loss for step in report.probes] == losses[4:]
    value = valid(render_json(report))
    assert value["summary"]["step"] == 3
    assert [step["loss"] for step in value["training"]] == losses[:3]
    first = value["training"][0]
    norms = [first["parameters"][name] for name in ("head.weight", "head.bias")]
    assert math.hypot(*norms) == pytest.approx(first["grad_norm"])
    assert first["parameters"]["idle.weight"] is None
    kinds = [json.loads(line)["kind"] for line in lines_in(report)]
    assert kinds.count("training") == 3


def test_words_tell_optimizer_and_both_ends(recording):
    report = Report.from_recording(recording)
    first, last = report.training[0], report.summary
    assert words(report) == (
        f"3 steps with an assumed Adam(lr=0.001): loss {first.loss:g} -> {last.loss:g}, "
        f"norm {first.grad_norm:g} -> {last.grad_norm:g}"
    )
    markdown = render(report, "markdown", ViewOptions(), None)
    assert "- **trained**: 3 steps with an assumed Adam" in markdown


@pytest.mark.parametrize(
    ("norms", "last", "expected"),
    [
        ([1.0, 9.0, 2.0], 3.0, " (largest 9 after 1 step)"),
        ([1.0, 2.0, 9.0], 3.0, " (largest 9 after 2 steps)"),
        ([9.0, 2.0, 1.0], 3.0, ""),
        ([1.0, 2.0, 3.0], 9.0, ""),
        ([1.0, 2.0, 9.0], math.nan, " (largest 9 after 2 steps)"),
        ([1.0, 2.0, 9.0], None, " (largest 9 after 2 steps)"),
        ([None, None, None], 3.0, ""),
    ],
)
def test_words_tell_the_largest_norm_on_the_way(recording, norms, last, expected):
    report = Report.from_recording(recording)
    training = tuple(
        replace(step, grad_norm=norm) for step, norm in zip(report.training, norms, strict=True)
    )
    summary = replace(report.summary, grad_norm=last)
    told = words(replace(report, training=training, summary=summary))
    assert told.partition("(largest")[2] == expected.partition("(largest")[2]


def test_step_that_starts_from_no_scalar_has_no_loss_to_tell():
    target = target_from_objects(nn.Linear(3, 2), X, grad_output="ones")
    recording = record(target, trial=Trial(steps=2), eager=False, command="inspect")
    report = Report.from_recording(recording)
    assert words(report).startswith("2 steps with an assumed Adam(lr=0.001): norm ")
