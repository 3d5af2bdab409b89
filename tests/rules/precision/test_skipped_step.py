import pytest

from gradscope.rules.engine import judge
from tests.rules.clipping.clipped_run import STEP, trained


def scaled(skips, *, scale=65536.0):
    """Make a step or skip it, one after the other; the scale is halved with every skip."""
    run, weights, optimizer = trained()
    for skip in skips:
        run.zero(optimizer)
        run.backward(weights, scaled=1)
        run.event("scaler-step", STEP, optimizer=optimizer, skipped=skip, found_inf=skip)
        if not skip:
            run.step(optimizer)
        after = scale / 2 if skip else scale
        run.event("scaler-update", STEP + 1, scale_before=scale, scale_after=after)
        scale = after
    return run


def said(run):
    return [one for one in judge(run.recording()).findings if one.rule == "GS602"]


def every(position, steps):
    return [step % position == position - 1 for step in range(steps)]


def test_lasting_share_is_a_warning_at_the_step():
    (found,) = said(scaled(every(4, 40)))
    assert (found.severity, found.location.line, found.count) == ("warning", STEP, 10)
    assert "10 of 40 steps (25%)" in found.message


def test_most_steps_are_an_error():
    (found,) = said(scaled([False] + [True, True, False] * 10))
    assert found.severity == "error"


def test_run_without_any_step_is_an_error():
    (found,) = said(scaled([True] * 25))
    assert found.severity == "error"
    assert "every one of 25 steps" in found.message


def test_scale_below_one_ends_the_search():
    assert not said(scaled([True] * 17))
    (found,) = said(scaled([True] * 18))
    assert found.severity == "error"


@pytest.mark.parametrize("search", [1, 5, 12])
def test_search_for_the_scale_is_right(search):
    assert not said(scaled([True] * search + [False] * 10))
    assert not said(scaled([True] * search + [False] * 100))


def test_search_that_is_all_that_was_recorded_is_right():
    assert not said(scaled([True] * 6))


@pytest.mark.nightly
def test_rare_skips_are_how_a_scaler_works():
    assert not said(scaled(every(2000, 4000)))
    assert not said(scaled(every(30, 90)))


def test_two_skips_in_a_short_run_are_right():
    assert not said(scaled([False] * 10 + [True, True] + [False] * 10))


def test_no_scaler_no_skips():
    run, weights, optimizer = trained()
    for _ in range(30):
        run.zero(optimizer)
        run.backward(weights)
        run.step(optimizer)
    assert not said(run)


def test_each_optimizer_is_judged_by_itself():
    run, weights, first = trained()
    other = run.model("critic", 2)
    second = run.optimizer(other)
    for _ in range(40):
        run.backward((*weights, *other))
        run.event("scaler-step", STEP, optimizer=first, skipped=1)
        run.event("scaler-step", STEP + 1, optimizer=second, skipped=0)
        run.step(second, line=STEP + 1)
        run.zero(first)
        run.zero(second)
    (found,) = said(run)
    assert found.location.line == STEP
