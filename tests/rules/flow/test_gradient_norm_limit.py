import dataclasses
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import gradscope
from gradscope.rules.engine import judge
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, Settings
from tests.rules.clipping.clipped_run import trained
from tests.rules.inspecting import report_of_file


@pytest.fixture(scope="module")
def recording():
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8)))
    model.add_module("head", nn.Linear(8, 3))
    return gradscope.inspect(model, torch.randn(5, 6), "sum-squares", probe_steps=0).recording


def norm_over(recording, prefix=""):
    """The norm as torch makes it of the parameters below a module."""
    norms = [
        stat.gradient.norm
        for stat in recording.parameter_stats
        if recording.parameters[stat.parameter].name.startswith(prefix)
    ]
    return torch.tensor(norms, dtype=torch.float64).norm().item()


def findings(recording, limits):
    verdict = judge(recording, Settings(select=("GS113",), norm_limits=limits))
    return verdict.findings


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        (lambda norm: NormLimit(maximum=norm), 0),
        (lambda norm: NormLimit(maximum=math.nextafter(norm, 0)), 1),
        (lambda norm: NormLimit(minimum=norm), 0),
        (lambda norm: NormLimit(minimum=math.nextafter(norm, math.inf)), 1),
        (lambda norm: NormLimit(minimum=norm / 2, maximum=norm * 2), 0),
    ],
    ids=["maximum", "above maximum", "minimum", "below minimum", "between"],
)
def test_the_limit_itself_is_allowed(recording, limit, count):
    norm = math.hypot(*(s.gradient.norm for s in recording.parameter_stats))
    assert norm == pytest.approx(norm_over(recording), rel=1e-12)
    found = findings(recording, {WHOLE_MODEL: limit(norm)})
    assert len(found) == count
    assert all(dict(one.evidence)["norm"] == norm for one in found)


def test_norms_of_modules_count_the_modules_in_them(recording):
    body = norm_over(recording, "body")
    (found,) = findings(recording, {"body": NormLimit(maximum=body * 0.999)})
    assert dict(found.evidence)["norm"] == pytest.approx(body, rel=1e-12)
    assert found.parameters == ("body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias")
    assert not findings(recording, {"body": NormLimit(maximum=body * 1.001)})


def test_modules_of_one_pattern_are_one_finding_about_the_worst(recording):
    (found,) = findings(recording, {"body.*": NormLimit(maximum=1e-9)})
    assert found.count == 3  # body itself and its two layers
    assert ", and 2 more modules;" in found.message
    assert not findings(recording, {"tail.*": NormLimit(maximum=1e-9)})


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_is_above_every_maximum(recording, broken):
    stats = list(recording.parameter_stats)
    gradient = dataclasses.replace(stats[0].gradient, norm=broken, nonfinite=1)
    stats[0] = dataclasses.replace(stats[0], gradient=gradient)
    changed = dataclasses.replace(recording, parameter_stats=tuple(stats))
    (found,) = findings(changed, {WHOLE_MODEL: NormLimit(maximum=1e30)})
    assert found.severity == "error"
    assert recording.parameters[0].name in found.message


def test_without_a_limit_the_rule_is_neither_run_nor_skipped(recording):
    verdict = judge(recording, Settings())
    assert "GS113" not in verdict.ran
    assert "GS113" not in {item.rule for item in verdict.skipped}
    assert "GS113" in judge(recording, Settings(norm_limits={"": NormLimit(maximum=1.0)})).ran


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({"select": ("reach",)}, True),
        ({"ignore": ("GS101",)}, True),
        ({"ignore": ("GS113",)}, False),
        ({"ignore": ("flow",)}, False),
        ({"ignore": ("flow",), "extend_select": ("GS113",)}, True),
    ],
    ids=str,
)
def test_a_limit_that_is_set_holds_unless_it_is_ignored(recording, settings, runs):
    limits = {WHOLE_MODEL: NormLimit(maximum=1e-9)}
    verdict = judge(recording, Settings(norm_limits=limits, **settings))
    assert ("GS113" in verdict.ran) == runs
    assert ("GS113" in {found.rule for found in verdict.findings}) == runs


def with_training(recording, *factors):
    """A recording whose judged step is the last, after steps with so many times its gradients."""
    steps, stats = [], []
    for index, factor in enumerate((*factors, 1.0)):
        kind = "training" if index < len(factors) else "step"
        steps.append(dataclasses.replace(recording.steps[0], index=index, kind=kind))
        for stat in recording.parameter_stats:
            gradient = dataclasses.replace(stat.gradient, norm=stat.gradient.norm * factor)
            stats.append(dataclasses.replace(stat, step=index, gradient=gradient))
    return dataclasses.replace(recording, steps=tuple(steps), parameter_stats=tuple(stats))


def test_every_step_on_the_way_is_held_to_the_limit(recording):
    norm = norm_over(recording)
    limits = {WHOLE_MODEL: NormLimit(maximum=2 * norm)}
    assert not findings(with_training(recording, 0.5, 1.9), limits)
    (found,) = findings(with_training(recording, 0.5, 7.0, 3.0), limits)
    assert found.step == 1
    assert "after 1 step, above the limit" in found.message
    assert dict(found.evidence)["norm"] == pytest.approx(7 * norm)
    (first,) = findings(with_training(recording, 9.0), limits)
    assert "at the first step, above" in first.message


def test_what_makes_the_norm_nan_explains_that_it_is_beyond_the_limit():
    path = Path(__file__).parents[3] / "sample_models" / "non_finite_gradient.py"
    limits = Settings(norm_limits={WHOLE_MODEL: NormLimit(maximum=1.0)})
    (found,) = report_of_file(path, settings=limits).findings
    assert (found.rule, [one.rule for one in found.consequences]) == ("GS103", ["GS113"])


@pytest.mark.parametrize("by_value", [False, True])
def test_limit_of_a_run_holds_for_norms_before_its_clips(by_value):
    run, weights, optimizer = trained()
    for size in (1.0, 50.0, 1.0):
        run.zero(optimizer)
        run.backward(weights, size=size)
        measured = {"norm": 2 * size, "norm_after": 2 * size} if by_value else {}
        run.clip(weights, 1.0, by_value=by_value, **measured)
        run.step(optimizer)
    limits = {WHOLE_MODEL: NormLimit(maximum=10.0)}
    (found,) = judge(run.recording(), Settings(select=("GS113",), norm_limits=limits)).findings
    assert dict(found.evidence)["norm"] == pytest.approx(100.0)
    assert found.step == 1
