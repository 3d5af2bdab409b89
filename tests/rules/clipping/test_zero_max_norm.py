import math

import pytest

from tests.rules.clipping.clipped_run import CLIP, healthy_loop, trained


@pytest.mark.parametrize(
    ("max_norm", "words"),
    [(0.0, "every gradient zero"), (-1.0, "flips the sign of every gradient"), (math.nan, "NaN")],
)
def test_limit_that_is_not_above_zero_is_an_error_at_its_line(max_norm, words):
    (found,) = healthy_loop(max_norm=max_norm).said_by("GS410")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 10)
    assert words in found.message


@pytest.mark.parametrize("max_norm", [1e-12, 1.0, math.inf])
def test_limit_above_zero_is_right(max_norm):
    assert not healthy_loop(max_norm=max_norm).findings("GS410")


def test_one_of_several_limits_on_a_line_is_a_warning():
    run, weights, optimizer = trained()
    for max_norm in (0.0, 0.1, 1.0):
        for _ in range(5):
            run.zero(optimizer)
            run.backward(weights)
            run.clip(weights, max_norm)
            run.step(optimizer)
    found = run.found("GS410")
    assert (found.severity, found.count) == ("warning", 5)


def test_call_that_finds_no_gradient_changes_nothing():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.backward(weights)
        run.clip((), 0.0)
        run.step(optimizer)
        run.zero(optimizer)
    assert not run.findings("GS410")


def test_negative_value_makes_all_elements_equal():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, -0.5, by_value=True)
        run.step(optimizer)
    assert "every element of the gradients -0.5" in run.found("GS410").message
