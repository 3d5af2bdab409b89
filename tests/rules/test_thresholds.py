"""Every threshold: just below, at and just above the number that a real recording holds."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

import gradscope
from gradscope.rules.catalogue import RULES
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push
from tests.rules.inspecting import report_of_file

SAMPLES = Path(__file__).parents[2] / "sample_models"

# Rule, threshold, the evidence that is held against it, the level that is kept on it and lost
# beyond it, and the other thresholds that are moved out of the way.
LEVELS = [
    ("exploding-gradient", "error_decades", "decades", "error", "warning", {}),
    ("exploding-gradient", "warning_decades", "decades", "warning", "note", {"error_decades": 99}),
    (
        "exploding-gradient",
        "note_decades",
        "decades",
        "note",
        None,
        {"error_decades": 99, "warning_decades": 99},
    ),
    ("vanishing-gradient", "error_decades", "decades", "error", "warning", {}),
    ("vanishing-gradient", "warning_decades", "decades", "warning", "note", {"error_decades": 99}),
    (
        "vanishing-gradient",
        "note_decades",
        "decades",
        "note",
        None,
        {"error_decades": 99, "warning_decades": 99},
    ),
    ("dead-unit", "error_share", "share", "error", "warning", {}),
    ("dead-unit", "warning_share", "share", "warning", "note", {"error_share": 2}),
    ("dead-unit", "note_share", "share", "note", None, {"error_share": 2, "warning_share": 2}),
    ("dead-unit", "rows", "rows", "error", "note", {"error_share": 0.6}),
    ("dead-unit", "few_rows", "rows", "warning", None, {}),
    ("dead-unit", "few_units", "units", "warning", "note", {}),
    ("loss-maximised", "least", "share_of_chance", "error", None, {}),
    ("decay-dominates", "share", "removed_share", "warning", None, {}),
    ("read-behind-padding", "share", "share_of_padding", "warning", "note", {}),
    ("path-cut", "calls", "states_cut", "error", None, {}),
    ("padding-in-loss", "share", "padding_share", "warning", None, {}),
    ("targets-out-of-range", "lost", "lost", "warning", None, {}),
    ("targets-out-of-range", "error", "lost", "error", "warning", {}),
    ("scale-behind-relu", "least_share", "share", "warning", None, {}),
    ("saturated-activation", "share", "share", "warning", None, {}),
    ("saturated-activation", "elements", "elements", "warning", None, {}),
    ("update-too-large", "sgd_error", "update_ratio", "error", "warning", {}),
    ("update-too-large", "sgd_warning", "update_ratio", "warning", None, {"sgd_error": 99}),
    ("symmetric-units", "share", "share_alike", "error", None, {}),
    ("short-memory-horizon", "decades", "decades", "note", None, {}),
    ("short-memory-horizon", "error_decades", "decades", "error", "note", {"error_horizon": 1e9}),
    ("gradient-underflow", "error", "share_flushed", "error", "warning", {}),
    ("gradient-underflow", "warning", "share_flushed", "warning", "note", {"error": 2}),
    ("gradient-underflow", "note", "share_flushed", "note", None, {"error": 2, "warning": 2}),
    ("float16-without-scaler", "error", "share_flushed", "error", "warning", {}),
    ("float16-without-scaler", "warning", "share_flushed", "warning", "note", {"error": 2}),
    ("float16-without-scaler", "note", "share_flushed", "note", None, {"error": 2, "warning": 2}),
    ("epsilon-dominates", "warning", "share_below_epsilon", "warning", None, {"error": 2}),
]

# Rule, threshold, evidence, the level where the number is below the limit, and that where it is on
# it: these ask for less than a limit, or for more.
BELOW = [
    ("update-too-small", "sgd_note", "update_ratio", "note", None),
    ("loss-term-conflict", "cosine", "cosine", "note", None),
    ("scale-behind-relu", "highest_floor", "lowest", "warning", None),
]
ABOVE = [
    ("zero-gradient", "error_above", "share_of_trainable_elements", "error", "warning"),
    ("wrong-custom-gradient", "warning_deviation", "relative_deviation", "warning", None),
    ("wrong-custom-gradient", "error_deviation", "relative_deviation", "error", "warning"),
    ("loss-term-conflict", "ratio", "ratio", "note", None),
    ("first-loss", "high", "ratio", "note", None),
    ("short-memory-horizon", "error_horizon", "horizon", "note", "error"),
]

_reports = {}


def report_of(name):
    """The report of a rule's sample, inspected once."""
    if name not in _reports:
        _reports[name] = report_of_file(SAMPLES / f"{name.replace('-', '_')}.py")
    return _reports[name]


def measured(name, evidence):
    (finding,) = report_of(name).findings
    return dict(finding.evidence)[evidence]


def level(name, thresholds):
    """The severity of what the rule finds in its sample under other thresholds."""
    code = next(rule.code for rule in RULES if rule.name == name)
    settings = Settings(select=(code,), thresholds={name: thresholds})
    return next((f.severity for f in judge(report_of(name).recording, settings).findings), None)


@pytest.mark.parametrize(
    ("name", "field", "evidence", "kept", "lost", "others"), some_on_push(LEVELS, 4)
)
def test_a_level_is_reached_on_its_limit(name, field, evidence, kept, lost, others):
    number = float(measured(name, evidence))
    assert level(name, others | {field: math.nextafter(number, -math.inf)}) == kept
    assert level(name, others | {field: number}) == kept
    assert level(name, others | {field: math.nextafter(number, math.inf)}) == lost


@pytest.mark.parametrize(("name", "field", "evidence", "below", "reached"), BELOW)
def test_a_number_has_to_be_below_its_limit(name, field, evidence, below, reached):
    number = float(measured(name, evidence))
    assert level(name, {field: math.nextafter(number, math.inf)}) == below
    assert level(name, {field: number}) == reached
    assert level(name, {field: math.nextafter(number, -math.inf)}) == reached


@pytest.mark.parametrize(("name", "field", "evidence", "above", "reached"), ABOVE)
def test_a_number_has_to_be_above_its_limit(name, field, evidence, above, reached):
    number = float(measured(name, evidence))
    others = {
        ("wrong-custom-gradient", "warning_deviation"): {"error_deviation": 3.0},
        ("loss-term-conflict", "ratio"): {"cosine": -2.0},
        ("short-memory-horizon", "error_horizon"): {"error_decades": 0.0},
    }.get((name, field), {})
    assert level(name, others | {field: math.nextafter(number, -math.inf)}) == above
    assert level(name, others | {field: number}) == reached
    assert level(name, others | {field: math.nextafter(number, math.inf)}) == reached


ELSEWHERE = {
    "bounded-logits": {"contrast", "weights"},
    "first-loss": {"low"},
    "dead-unit": {"samples"},
    "duplicate-in-optimizer": {"share"},
    "embedding-drowned": {"ratio", "spread"},
    "epsilon-dominates": {"error", "common", "small_loss", "stands"},
    "exploding-gradient": {"jump_decades", "jump_error_decades"},  # below
    "frozen-head": {"most_frozen"},
    "wrong-custom-gradient": {
        "least_growths",
        "least_hooks",
        "least_parameters",
        "least_reads",
        "least_zeros",
    },
    "momentum-never-fades": {"highest"},
    "own-similarity-in-loss": {"share"},
    "targets-not-probabilities": {"share"},
    "quotient-always-zero": {"least_numbers", "near"},
    "frozen-parameter-in-optimizer": {"tail_steps"},
    "loss-term-conflict": {"factor", "rows"},
    "saturated-activation": {"fresh_share", "passed"},
    "targets-out-of-range": {"outside"},
    "zero-gradient": {"note_below", "rounding"},
    "parameter-not-in-optimizer": {"most_elements", "most_share", "most_times", "small_share"},
    "update-too-large": {"adaptive_note", "adaptive_warning", "adaptive_error"},
    "update-too-small": {"group_rate", "lost", "rest", "stretch_share", "stretch_steps"},
}
"""Thresholds that the samples do not meet: tested with their rules."""


def test_no_threshold_is_left_out():
    tested = {(case[0], case[1]) for case in (*LEVELS, *BELOW, *ABOVE)}
    tested |= {(name, field) for name, fields in ELSEWHERE.items() for field in fields}
    # Rules over runs have loops of their own, in test_run_thresholds.
    rules = [rule for rule in RULES if not rule.needs_run]
    every = {(rule.name, field.name) for rule in rules for field in dataclasses.fields(rule)}
    assert tested == every


@pytest.fixture(scope="module")
def recurrent():
    """The recording of a recurrent layer whose gradient explodes through time."""
    torch.manual_seed(0)
    layer = torch.nn.RNN(4, 32, nonlinearity="relu", batch_first=True)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(1.5 * torch.eye(32))
    steps = torch.randn(8, 40, 4)
    return gradscope.inspect(layer, steps, lambda output: output[0][:, -1].mean()).recording


def test_growth_through_time_is_judged_like_a_jump(recurrent):
    def found(**thresholds):
        thresholds |= {"note_decades": 99, "warning_decades": 99, "error_decades": 99}
        settings = Settings(select=("GS101",), thresholds={"exploding-gradient": thresholds})
        return judge(recurrent, settings).findings

    (finding,) = found()
    number = dict(finding.evidence)["decades"]
    assert number == pytest.approx(39 * math.log10(1.5), rel=0.05)  # between 40 steps
    above = math.nextafter(number, math.inf)
    assert found(jump_decades=number, jump_error_decades=99)[0].severity == "warning"
    assert found(jump_decades=above, jump_error_decades=99) == ()
    assert found(jump_error_decades=number)[0].severity == "error"
    assert found(jump_error_decades=above)[0].severity == "warning"
