import pytest

from tests.rules.clipping.clipped_run import CLIP, trained


def training(steps=40, max_norm=0.02, sizes=(1.0,), class_name="SGD", **numbers):
    """A loop whose gradients have a norm of twice each size in turn."""
    run, weights, optimizer = trained(class_name=class_name)
    for step in range(steps):
        run.zero(optimizer)
        run.backward(weights, size=sizes[step % len(sizes)])
        run.clip(weights, max_norm, **numbers)
        run.step(optimizer)
    return run


def test_limit_of_a_hundredth_of_the_norm_sets_every_step():
    (found,) = training().said_by("GS405")
    assert (found.severity, found.location.line, found.count) == ("warning", CLIP, 40)
    evidence = dict(found.evidence)
    assert evidence["median_coefficient"] == pytest.approx(0.01, rel=1e-5)
    assert evidence["median_norm"] == 2.0
    assert "clip_grad_norm_(max_norm=0.02) clips 40 of 40 steps" in found.message
    assert "learning rate" in found.remedy


def test_limit_that_cuts_all_steps_to_a_tenth_is_common_with_recurrent_networks():
    assert not training(max_norm=0.2).said_by("GS405")


def test_outliers_alone_are_cut_hard():
    assert not training(max_norm=0.01, sizes=(1e-3, 1e-3, 1e-3, 1.0)).said_by("GS405")


def test_warm_up_that_is_cut_hard_is_over_soon():
    run, weights, optimizer = trained()
    for step in range(60):
        run.zero(optimizer)
        run.backward(weights, size=50.0 if step < 20 else 0.4)
        run.clip(weights, 1.0)
        run.step(optimizer)
    assert not run.said_by("GS405")


@pytest.mark.parametrize("size", [0.5, 2.0, 10.0, 100.0])
def test_policy_gradients_with_adam_and_half_a_norm_are_healthy(size):
    assert not training(max_norm=0.5, sizes=(size,), class_name="Adam").said_by("GS405")


def test_adam_is_told_only_where_next_to_nothing_is_left():
    (found,) = training(max_norm=0.001, class_name="Adam").said_by("GS405")
    assert found.severity == "note"


def test_few_steps_tell_nothing():
    assert not training(steps=19).said_by("GS405")


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("inf"), 1e12])
def test_limits_that_are_none_are_for_other_rules(max_norm):
    assert not training(max_norm=max_norm).said_by("GS405")


def test_scaled_gradients_are_cut_because_of_the_scale():
    assert not training(scaled=4).said_by("GS405")


def test_clips_inside_accumulation_are_not_judged_by_what_they_leave():
    run, weights, optimizer = trained()
    for _ in range(40):
        run.zero(optimizer)
        for _ in range(4):
            run.backward(weights)
            run.clip(weights, 0.01)
        run.step(optimizer)
    assert not run.said_by("GS405")


def test_norm_that_is_not_finite_is_no_step():
    run = training(sizes=(1.0, float("nan")))
    (found,) = run.said_by("GS405")
    assert dict(found.evidence)["share_of_steps_cut"] == 1.0
    assert found.count == 20
