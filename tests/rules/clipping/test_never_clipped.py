import pytest

from tests.rules.clipping.clipped_run import CLIP, healthy_loop, trained


def test_limit_far_above_every_norm_is_a_note():
    (found,) = healthy_loop(steps=100, max_norm=6.0).said_by("GS406")
    assert (found.severity, found.location.line) == ("note", CLIP)
    assert dict(found.evidence)["times_largest_norm"] == 3.0
    assert "3 times the largest norm, 2" in found.message


@pytest.mark.parametrize(("size", "remedy"), [(0.1, "lower it to about"), (1e-8, "see why")])
def test_a_limit_for_a_tiny_gradient_is_no_remedy(size, remedy):
    (found,) = healthy_loop(steps=100, size=size, max_norm=1.0).said_by("GS406")
    assert found.remedy.startswith(remedy)


def test_limit_of_twice_the_norm_is_there_for_outliers():
    assert not healthy_loop(steps=200, max_norm=4.0).said_by("GS406")


def test_short_run_tells_of_a_limit_that_is_out_of_all_proportion_alone():
    assert not healthy_loop(steps=20, max_norm=8.0).said_by("GS406")
    assert healthy_loop(steps=20, max_norm=20.0).said_by("GS406")
    assert not healthy_loop(steps=19, max_norm=20.0).said_by("GS406")


@pytest.mark.parametrize("max_norm", [float("inf"), 1e9])
def test_clip_that_only_measures_needs_no_limit(max_norm):
    assert not healthy_loop(steps=100, max_norm=max_norm).said_by("GS406")


def test_one_large_norm_is_what_the_clip_is_for():
    run, weights, optimizer = trained()
    for step in range(100):
        run.zero(optimizer)
        run.backward(weights, size=5.0 if step == 50 else 0.1)
        run.clip(weights, 6.0)
        run.step(optimizer)
    assert not run.said_by("GS406")


def test_norm_that_is_not_finite_was_reached_all_the_same():
    run, weights, optimizer = trained()
    for step in range(100):
        run.zero(optimizer)
        run.backward(weights, size=float("inf") if step == 50 else 0.1)
        run.clip(weights, 6.0)
        run.step(optimizer)
    assert not run.said_by("GS406")


def test_gradients_of_zero_tell_nothing():
    assert not healthy_loop(steps=100, size=0.0).said_by("GS406")
