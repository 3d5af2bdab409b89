import math

import pytest

from tests.rules.clipping.clipped_run import CLIP, trained


def by_value(*cosines, class_name="SGD", **numbers):
    run, weights, optimizer = trained(class_name=class_name)
    for cosine in cosines:
        run.zero(optimizer)
        run.backward(weights)
        measured = {"norm": 2.0, "norm_after": 1.0, "cosine": cosine, **numbers}
        run.clip(weights, 0.1, by_value=True, **measured)
        run.step(optimizer)
    return run


def one_by_one(sizes, max_norm=1.0, steps=10):
    run, weights, optimizer = trained(parameters=len(sizes))
    for _ in range(steps):
        run.zero(optimizer)
        for weight, size in zip(weights, sizes, strict=True):
            run.backward([weight], size=size)
        for weight in weights:
            run.clip([weight], max_norm)
        run.step(optimizer)
    return run


@pytest.mark.parametrize(
    ("cosine", "severity"), [(0.5, "warning"), (0.79, "warning"), (0.8, "note"), (0.94, "note")]
)
def test_value_clipping_that_turns_the_gradient(cosine, severity):
    (found,) = by_value(*[cosine] * 10).said_by("GS407")
    assert (found.severity, found.location.line, found.count) == (severity, CLIP, 10)
    assert dict(found.evidence)["median_cosine"] == cosine


def test_value_clipping_that_cuts_outliers_alone_keeps_the_direction():
    assert not by_value(*[0.96] * 10).said_by("GS407")
    assert not by_value(*[1.0] * 9, 0.3).said_by("GS407")


def test_few_steps_tell_nothing():
    assert not by_value(*[0.3] * 4).said_by("GS407")


def test_gradients_without_a_direction_tell_nothing():
    assert not by_value(*[math.nan] * 10, norm=0.0, norm_after=0.0).said_by("GS407")


def test_recordings_that_do_not_hold_the_cosine_tell_nothing():
    run, weights, optimizer = trained()
    for _ in range(10):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, 0.1, by_value=True)
        run.step(optimizer)
    assert not run.said_by("GS407")


def test_parameters_clipped_one_by_one_lose_their_proportion():
    sizes = (10.0, 0.5, 0.5, 0.5, 0.5)
    (found,) = one_by_one(sizes).said_by("GS407")
    after = (1.0, 0.5, 0.5, 0.5, 0.5)
    product = sum(a * b for a, b in zip(sizes, after, strict=True))
    expected = product / math.hypot(*sizes) / math.hypot(*after)
    assert dict(found.evidence)["median_cosine"] == pytest.approx(expected, rel=1e-5)


def test_parameters_clipped_one_by_one_of_which_none_is_cut():
    assert not one_by_one((0.9, 0.1, 0.5)).said_by("GS407")


def test_parameters_clipped_one_by_one_that_are_all_cut_alike():
    assert not one_by_one((5.0, 5.0, 5.0)).said_by("GS407")


def test_clip_by_the_global_norm_keeps_the_direction_however_hard_it_is():
    run, weights, optimizer = trained()
    for _ in range(20):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, 1e-6)
        run.step(optimizer)
    assert not run.said_by("GS407")


def test_two_networks_that_one_line_clips_have_directions_of_their_own():
    run, first, first_optimizer = trained()
    second = run.model("critic", 2)
    second_optimizer = run.optimizer(second)
    for _ in range(10):
        run.zero((*first, *second))
        run.backward(first, size=100.0)
        run.backward(second, size=0.1)
        run.clip(first, 1.0)
        run.clip(second, 1.0)
        run.step(first_optimizer)
        run.step(second_optimizer)
    assert not run.said_by("GS407")
