"""`gradscope rule CODE --why RECORDING`: what a rule measured, and what came of it."""

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.recording.store import load_recording
from gradscope.rules.accumulation.missing_zero_grad import MissingZeroGrad
from gradscope.rules.accumulation.schedules.rates import RateMultipliedTwice
from gradscope.rules.clipping.max_norms import AlwaysClipped
from gradscope.rules.explanation import explain
from gradscope.rules.flow.dead_unit import DeadUnit
from gradscope.rules.flow.update_too_small import UpdateTooSmall
from gradscope.rules.flow.vanishing_gradient import VanishingGradient
from gradscope.rules.measurement import Measurement
from gradscope.rules.settings import Settings

ROOT = Path(__file__).parents[2]

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
for _ in range(40):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})
    optimizer.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, gradscope_in):
    """Returns the recording of the script with a limit of its clip."""

    def record(limit: float) -> Path:
        folder = tmp_path_factory.mktemp("explained")
        script, recording = folder / "train.py", folder / "train.gradscope"
        script.write_text(SCRIPT.replace("{limit}", f"{limit:g}"))
        done = gradscope_in(folder, "run", "-q", "--save", str(recording), str(script))
        assert done.returncode == 0, done.stderr
        return recording

    return record


@pytest.fixture(scope="module")
def hardly_clipped(recorded):
    return recorded(1.5)


@pytest.fixture(scope="module")
def hard_clipped(recorded):
    return recorded(0.001)


def test_a_rule_that_fires_shows_the_number_beyond_its_limit(hard_clipped):
    explanation = explain(load_recording(hard_clipped), AlwaysClipped)
    (finding,) = explanation.findings
    by_number = {one.number: one for one in explanation.measurements}
    measured = by_number["median_coefficient"]
    assert measured.value == dict(finding.evidence)["median_coefficient"]
    assert measured.limit == AlwaysClipped().hard
    assert measured.is_beyond
    assert by_number["share_of_steps_cut"].value == 1.0
    assert measured.site == finding.location


def test_a_rule_that_does_not_fire_shows_how_far_it_was_from_it(hardly_clipped):
    explanation = explain(load_recording(hardly_clipped), AlwaysClipped)
    assert explanation.findings == ()
    assert explanation.skip_reason is None
    by_number = {one.number: one for one in explanation.measurements}
    assert not by_number["median_coefficient"].is_beyond
    assert by_number["median_coefficient"].value > AlwaysClipped().hard


def test_thresholds_of_the_user_are_the_limits_shown(hard_clipped):
    settings = Settings(thresholds={"always-clipped": {"hard": 1e-9}})
    explanation = explain(load_recording(hard_clipped), AlwaysClipped, settings)
    limits = {one.limit for one in explanation.measurements if one.number == "median_coefficient"}
    assert limits == {1e-9}
    assert explanation.findings == ()


def test_a_rule_of_single_passes_says_how_many_captured_steps_it_judged(hardly_clipped):
    recording = load_recording(hardly_clipped)
    explanation = explain(recording, DeadUnit)
    assert explanation.judged_steps
    judged = {one.step for one in explanation.measurements}
    assert judged <= {captured.step for captured in recording.captured_steps}
    assert len(judged) <= explanation.judged_steps


def test_a_rule_that_cannot_judge_says_why(hardly_clipped):
    explanation = explain(load_recording(hardly_clipped), RateMultipliedTwice)
    assert explanation.skip_reason == "the run has no LambdaLR"
    assert explanation.findings == ()
    assert explanation.measurements == ()


def test_a_rule_runs_that_the_settings_leave_out(hard_clipped):
    settings = Settings(ignore=("GS405",), select=("GS1",))
    assert explain(load_recording(hard_clipped), AlwaysClipped, settings).findings


def test_the_command_prints_it(hard_clipped, gradscope_in, tmp_path):
    shutil.copy(hard_clipped, tmp_path / "train.gradscope")
    done = gradscope_in(tmp_path, "rule", "GS405", "--why", "train.gradscope", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert "GS405 always-clipped" in done.stdout
    assert "Found 1 problem (warning)" in done.stdout
    assert "median_coefficient" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    done = gradscope_in(
        tmp_path, "rule", "GS405", "--why", str(hard_clipped), "--output-format", "json"
    )
    written = json.loads(done.stdout)
    explanation = explain(load_recording(hard_clipped), AlwaysClipped)
    assert [one["value"] for one in written["measurements"]] == [
        one.value for one in explanation.measurements
    ]
    done = gradscope_in(
        tmp_path, "rule", "GS405", "--why", str(hard_clipped), "--output-format", "markdown"
    )
    assert "| number | measured |" in done.stdout


def test_a_rule_of_the_order_of_events_says_what_it_looked_at(hard_clipped):
    explanation = explain(load_recording(hard_clipped), MissingZeroGrad)
    counts = {one.what: one.count for one in explanation.candidates}
    assert counts == {
        "backward passes": 40,
        "calls that zero gradients": 40,
        "optimizer steps": 40,
    }
    (share,) = explanation.measurements
    assert (share.number, share.value) == ("share_of_steps", 0.0)


def test_optimizer_is_counted_once_not_in_each_captured_step(hard_clipped):
    recording = load_recording(hard_clipped)
    assert len(recording.captured_steps) > 1
    explanation = explain(recording, UpdateTooSmall)
    assert [(one.what, one.count) for one in explanation.candidates] == [("optimizers", 1)]


def test_report_explains_as_rule_does(hard_clipped, gradscope_in, tmp_path):
    done = gradscope_in(tmp_path, "report", "--explain", "GS405", str(hard_clipped))
    other = gradscope_in(tmp_path, "rule", "GS405", "--why", str(hard_clipped))
    assert (done.returncode, done.stdout) == (0, other.stdout)
    for words, message in (
        (["GS4", str(hard_clipped)], "takes one rule and one recording, not 11 rules"),
        (["GS405", str(hard_clipped), str(hard_clipped)], "not 2 recordings"),
        (["GS405", str(hard_clipped), "--output-format", "html"], "has no format `html`"),
    ):
        done = gradscope_in(tmp_path, "report", "--explain", *words)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["GS4", "--why", "{recording}"], "--why explains one rule"),
        (["GS405", "--why", "missing.gradscope"], "missing.gradscope"),
    ],
)
def test_wrong_input_is_one_line(words, message, hard_clipped, gradscope_in, tmp_path):
    words = [word.replace("{recording}", str(hard_clipped)) for word in words]
    done = gradscope_in(tmp_path, "rule", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_recording_of_one_step_is_explained(gradscope_in, tmp_path):
    recording = tmp_path / "model.gradscope"
    sample = ROOT / "sample_models" / "vanishing_gradient.py"
    gradscope_in(tmp_path, "inspect", "-q", "--save", str(recording), str(sample))
    explanation = explain(load_recording(recording), VanishingGradient)
    (finding,) = explanation.findings
    (measured,) = explanation.measurements
    assert measured.value == dict(finding.evidence)["decades"]
    assert explanation.judged_steps is None


def measurement(value: float, limit: float, fires: str) -> Measurement:
    return Measurement(rule="GS1", number="n", value=value, limit=limit, fires=fires)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["above", "below"]))
def test_distance_is_beyond_one_where_the_limit_is_reached(value, limit, fires):
    one = measurement(value, limit, fires)
    assert one.is_beyond == (one.distance >= 1.0)
    assert math.isclose(one.distance, value / limit if fires == "above" else limit / value)


@pytest.mark.parametrize(("value", "limit"), [(-1.0, 1.0), (1.0, 0.0), (math.nan, math.inf)])
def test_no_distance_is_known_across_zero(value, limit):
    assert math.isnan(measurement(value, limit, "above").distance)
