"""Every threshold of a rule over runs: just below, on and just above the number of a training."""

import dataclasses
import math

import pytest

from gradscope.rules.catalogue import RULES
from gradscope.rules.engine import judge
from gradscope.rules.rule import family_of
from gradscope.rules.settings import Settings
from tests.rules.accumulation.runs import Run
from tests.rules.precision.test_scale_without_unstep import loop as scaled_steps
from tests.rules.run_trainings import (
    DEVIATIONS,
    SHARE,
    SICK,
    SPIKE,
    Leaking,
    beside_another,
    ceasing,
    clipped_early,
    clipped_in_part,
    clipped_inside,
    clipped_late,
    clipped_while_scaled,
    clipped_with_nothing_left,
    cut_to,
    divided_again,
    divided_in_vain,
    erased,
    growing,
    in_eval_mode,
    keeping,
    made_anew,
    never_stepping,
    of_unequal_lengths,
    old_gradients,
    overwritten,
    repeated,
    rounded,
    skipping,
    spike,
    spiking,
    turned,
    undivided,
    uneven,
    used_again,
    wavering,
    without_gradient,
)

MILD = {"error_share": 2.0}
MANY = {"least_steps": 20, "far_beyond": math.inf}

ALL = [True] * 20
QUARTER = 0.5 / (2.0 + 1e-6)
"""What a limit of a half leaves of a norm of two."""


def all_cut():
    return cut_to(0.5, ALL)


def closures(zeroing):
    """Eight steps that evaluate a closure three times, some of which zero in the closure."""
    run = Run()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights, "LBFGS")
    for step in range(8):
        run.zero(optimizer, line=10)
        for _ in range(3):
            if step < zeroing:
                run.zero(optimizer, line=14)
            run.backward(weights, line=15)
        run.step(optimizer, line=20, evaluations=3 * (step + 1))
    return run


def all_cut_of_adam():
    return cut_to(0.5, ALL, class_name="Adam")


def cut_hard():
    return cut_to(is_sick=ALL)


def far_above():
    return cut_to(8.0, ALL)


ELSEWHERE = {
    "plateau-in-wrong-mode": {"least"},
    "schedule-stepped-rarely": {"warm_up_calls", "warm_up_rate"},
    "scaled-without-accumulation": {"least_periods"},
    "step-without-effect": {
        "least_passes",
        "least_ratio",
        "least_steps",
        "least_times",
        "most_share",
    },  # on what real steps do to weights
    "clip-of-strangers": {"share"},
    "flat-loss": {"moved", "noise", "steps"},
    "idle-expert": {"rows", "share", "steps"},
    "schedule-of-replaced-optimizer": {"least"},
    "schedule-outruns-plan": {"least"},
    "rate-overwritten": {"replaced", "share", "steps"},
    "logits-grow": {"captures", "factor", "largest", "lasting"},
    "update-spike": {"factor", "follows", "least_history", "window"},
    "unbounded-loss": {"error", "steps", "warning"},
    "target-never-updated": {"steps"},
    "wrong-weight-average": {"least_kept"},
}
"""Thresholds that are tested with their rule."""

# Rule, threshold, the training, the number of it, the level that is kept on it and lost beyond it,
# and the other thresholds that are moved out of the way.
SHARES = [
    (
        "scale-without-unstep",
        "share",
        lambda: scaled_steps(steps=8, through_scaler=range(3)),
        5 / 8,
        "error",
        None,
        {},
    ),
    ("closure-accumulates", "share", lambda: closures(zeroing=3), 5 / 8, "error", None, {}),
    ("missing-zero-grad", "error_share", old_gradients, SHARE, "error", "warning", {}),
    ("missing-zero-grad", "warning_share", old_gradients, SHARE, "warning", None, MILD),
    ("gradient-erased-before-step", "error_share", erased, SHARE, "error", "warning", {}),
    ("gradient-erased-before-step", "warning_share", erased, SHARE, "warning", None, MILD),
    ("gradient-erased-before-step", "error_share", overwritten, SHARE, "error", "warning", {}),
    ("unscaled-accumulation", "share", undivided, SHARE, "warning", None, {}),
    ("divided-twice", "share", divided_again, SHARE, "warning", None, {}),
    ("unscaled-accumulation", "even_share", of_unequal_lengths, SHARE, "warning", None, {}),
    ("step-without-gradient", "share", without_gradient, SHARE, "error", None, {}),
    ("step-without-gradient", "tail_share", ceasing, 0.5, "error", None, {}),
    ("step-without-gradient", "share", used_again, SHARE, "warning", None, {}),
    ("repeated-backward", "share", repeated, SHARE, "error", None, {}),
    ("training-in-eval-mode", "share", in_eval_mode, SHARE, "warning", None, {}),
    ("scaled-without-accumulation", "share", divided_in_vain, SHARE, "warning", None, {}),
    ("clip-after-step", "share", clipped_late, SHARE, "error", None, {}),
    ("clip-before-backward", "share", clipped_early, SHARE, "error", None, {}),
    ("clip-before-unscale", "share", clipped_while_scaled, SHARE, "error", None, {}),
    (
        "clip-before-unscale",
        "least_scale",
        lambda: clipped_while_scaled(scale=16.0, is_sick=[True] * 9),
        16.0,
        "error",
        None,
        {},
    ),
    (
        "clip-before-unscale",
        "own_scale",
        lambda: clipped_while_scaled(max_norm=16384.0, is_sick=[True] * 9),
        0.25,
        None,
        "error",
        {},
    ),
    ("partial-clip", "share", clipped_in_part, SHARE, "warning", None, {"small_share": 0.0}),
    (
        "partial-clip",
        "small_share",
        lambda: clipped_in_part(is_sick=[True] * 9),
        0.25,
        "warning",
        "note",
        {},
    ),
    ("partial-clip", "exhausted_share", clipped_with_nothing_left, SHARE, "error", None, {}),
    ("always-clipped", "share", cut_to, SHARE, "warning", None, {}),
    ("always-clipped", "hard", all_cut, QUARTER, None, "warning", {}),
    ("always-clipped", "hard_adaptive", all_cut_of_adam, QUARTER, None, "note", {}),
    ("never-clipped", "beyond", far_above, 4.0, "note", None, MANY),
    ("never-clipped", "far_beyond", far_above, 4.0, "note", None, {}),
    ("clip-changes-direction", "warning", turned, 0.75, "note", "warning", {}),
    ("clip-changes-direction", "note", turned, 0.75, None, "note", {"warning": 0.0}),
    ("clip-inside-accumulation", "share", clipped_inside, SHARE, "warning", None, {}),
    ("skipped-step", "error", lambda: skipping(SICK), SHARE, "error", "warning", {}),
    ("skipped-step", "warning", lambda: skipping(SICK), SHARE, "warning", None, {"error": 2.0}),
    (
        "gradient-spike",
        "often",
        lambda: spiking(spike(32.0), again=(48, 56)),
        3 / 40,
        "note",
        "warning",
        {},
    ),
    ("lost-update", "error", rounded, SHARE, "error", "warning", {}),
    ("lost-update", "warning", rounded, SHARE, "warning", None, {"error": 2.0}),
]

# The same of what has to be more than a limit, or less; the level on the limit is that beyond it.
ABOVE = [
    ("uneven-accumulation", "deviation", uneven, 1.0, "warning", None, {}),
    (
        "gradient-spike",
        "factor",
        lambda: spiking(spike(32.0), loss_after=1.0),
        32.0,
        "warning",
        None,
        {},
    ),
    ("gradient-spike", "together", lambda: spiking(spike(32.0)), 32.0, "warning", None, {}),
    (
        "gradient-spike",
        "beyond",
        lambda: spiking(spike(32.0, before=[(30, 4.0)])),
        8.0,
        "warning",
        None,
        {},
    ),
    ("gradient-spike", "deviations", lambda: spiking(wavering()), DEVIATIONS, "warning", None, {}),
    (
        "gradient-spike",
        "loss_rise",
        lambda: spiking(spike(32.0, before=[(3, 64.0)]), loss_after=1.5),
        0.5,
        "warning",
        None,
        {"beyond": 0.1},
    ),
]

# Counts: kept on the number, lost one above it.
COUNTS = [
    ("backward-without-step", "passes", lambda: never_stepping(20, 0), 20, "warning", None, {}),
    (
        "backward-without-step",
        "zeroed_passes",
        lambda: never_stepping(4, 3),
        3,
        "warning",
        None,
        {},
    ),
    ("backward-without-step", "steps", lambda: beside_another(7), 7, "warning", None, {}),
    ("growing-graph", "measurements", lambda: growing(12), 11, "warning", None, {}),
    ("growing-graph", "error_passes", lambda: growing(12), 10, "error", "warning", {}),
    ("gradient-leak", "steps", Leaking, 5, "error", None, {}),
    ("loss-history-kept", "rises", lambda: keeping(5, 10), 5, "warning", None, {}),
    ("loss-history-kept", "error_steps", lambda: keeping(5, 10), 10, "error", "warning", {}),
    ("step-without-gradient", "tail_steps", ceasing, 10, "error", None, {}),
    ("optimizer-recreated", "replacements", lambda: made_anew(6, 3), 6, "warning", None, {}),
    ("optimizer-recreated", "step_replacements", lambda: made_anew(6, 1), 6, "warning", None, {}),
    ("always-clipped", "least_steps", cut_hard, 20, "warning", None, {}),
    ("never-clipped", "least_steps", far_above, 20, "note", None, {"far_beyond": math.inf}),
    ("never-clipped", "few_steps", far_above, 20, "note", None, {"far_beyond": 4.0}),
    ("clip-changes-direction", "least_steps", turned, 20, "warning", None, {}),
    ("skipped-step", "least_steps", lambda: skipping(SICK), 20, "error", None, {}),
    ("skipped-step", "least_skipped", lambda: skipping(SICK), 15, "error", None, {}),
    (
        "gradient-spike",
        "window",
        lambda: spiking(spike(32.0, before=[(8, 32.0)])),
        SPIKE - 9,
        "warning",
        None,
        {},
    ),
    ("gradient-spike", "least_history", lambda: spiking(spike(32.0)), SPIKE, "warning", None, {}),
]

_recordings = {}


def level(name, training, thresholds):
    """The severity of what the rule finds under other thresholds."""
    recording = _recordings.get(training) or training().recording()
    _recordings[training] = recording
    code = next(rule.code for rule in RULES if rule.name == name)
    settings = Settings(select=(code,), thresholds={name: thresholds})
    found = judge(recording, settings).findings
    return next((finding.severity for finding in found), None)


def ids(cases):
    return [f"{case[0]}-{case[1]}-{position}" for position, case in enumerate(cases)]


@pytest.mark.parametrize(
    ("name", "field", "training", "number", "kept", "lost", "others"), SHARES, ids=ids(SHARES)
)
def test_a_level_is_reached_on_its_limit(name, field, training, number, kept, lost, others):
    assert level(name, training, others | {field: math.nextafter(number, -math.inf)}) == kept
    assert level(name, training, others | {field: number}) == kept
    assert level(name, training, others | {field: math.nextafter(number, math.inf)}) == lost


@pytest.mark.parametrize(
    ("name", "field", "training", "number", "above", "reached", "others"), ABOVE, ids=ids(ABOVE)
)
def test_a_number_has_to_be_above_its_limit(name, field, training, number, above, reached, others):
    assert level(name, training, others | {field: math.nextafter(number, -math.inf)}) == above
    assert level(name, training, others | {field: number}) == reached
    assert level(name, training, others | {field: math.nextafter(number, math.inf)}) == reached


@pytest.mark.parametrize(
    ("name", "field", "training", "number", "kept", "lost", "others"), COUNTS, ids=ids(COUNTS)
)
def test_a_count_is_reached_on_its_limit(name, field, training, number, kept, lost, others):
    assert level(name, training, others | {field: number - 1}) == kept
    assert level(name, training, others | {field: number}) == kept
    assert level(name, training, others | {field: number + 1}) == lost


def test_no_threshold_is_left_out():
    tested = {(case[0], case[1]) for case in (*SHARES, *ABOVE, *COUNTS)}
    tested |= {(name, field) for name, fields in ELSEWHERE.items() for field in fields}
    # Rules about ranks have jobs of their own, in ranks/test_thresholds.
    rules = [rule for rule in RULES if rule.needs_run and family_of(rule.code) != "ranks"]
    every = {(rule.name, field.name) for rule in rules for field in dataclasses.fields(rule)}
    assert tested == every
