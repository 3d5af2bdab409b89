"""What is told of the clips that a script made."""

import math
from dataclasses import replace

import pytest

from gradscope.analysis.clipping.clipping import Clipping
from tests.rules.clipping.clipped_run import CLIP, UNSCALE, ClippedRun, healthy_loop, trained


def section_of(run):
    (section,) = Clipping.of(run.recording()).sections
    return section


def wrong(section):
    return [one.text for one in section.checks if not one.is_right]


def test_norms_are_those_before_the_clip_and_the_limit_is_told_with_its_line():
    run, weights, optimizer = trained()
    for size in (0.1, 1.0, 5.0):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.clip(weights, 0.5)
        run.step(optimizer)
    section = section_of(run)
    assert (section.site.line, section.limit, section.method) == (CLIP, 0.5, "norm")
    assert [point.norm for point in section.points] == [0.2, 2.0, 10.0]
    expected = [1.0, 0.5 / (2 + 1e-6), 0.5 / (10 + 1e-6)]
    assert [point.coefficient for point in section.points] == pytest.approx(expected)
    assert [point.step for point in section.cut] == [1, 2]
    assert not wrong(section)


def test_a_norm_that_was_not_measured_is_none_of_the_non_finite_ones():
    run, weights, optimizer = trained()
    for norm in (0.2, 1.0, math.nan, 1.0, 2.0):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, 0.5, norm=norm)
        run.step(optimizer)
    recording = run.recording()
    events = tuple(
        replace(event, numbers=tuple(one for one in event.numbers if one[0] != "norm"))
        if event.step in (1, 3)
        else event
        for event in recording.events
    )
    (section,) = Clipping.of(replace(recording, events=events)).sections
    assert [point.step for point in section.points] == [0, 2, 4]
    assert [point.step for point in section.broken] == [2]


def test_parameters_are_told_before_and_after():
    run, weights, optimizer = trained(parameters=2)
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights[:1], size=3.0)
        run.backward(weights[1:], size=4.0)
        run.clip(weights, 1.0)
        run.step(optimizer)
    first, second = section_of(run).contributions.parameters
    assert (first.share, second.share) == pytest.approx((0.64, 0.36))
    assert (first.before, first.after) == pytest.approx((4.0, 0.8), rel=1e-5)


def test_rate_in_effect_is_that_of_the_mean_coefficient():
    section = section_of(healthy_loop(max_norm=0.5))
    assert section.optimizer.family == "sgd"
    assert section.coefficients.mean == pytest.approx(0.25, rel=1e-5)


def test_two_lines_are_two_sections():
    run = ClippedRun()
    first, second = run.model("generator", 2), run.model("critic", 3)
    one, other = run.optimizer(first, "Adam"), run.optimizer(second, "SGD")
    for _ in range(4):
        run.backward(first)
        run.clip(first, 0.1, line=31)
        run.step(one)
        run.zero(one)
        run.backward(second)
        run.clip(second, 10.0, line=41)
        run.step(other)
        run.zero(other)
    sections = Clipping.of(run.recording()).sections
    assert [section.site.line for section in sections] == [31, 41]
    assert [section.optimizer.family for section in sections] == ["adaptive", "sgd"]
    assert [len(section.contributions.parameters) for section in sections] == [2, 3]
    assert [len(section.cut) for section in sections] == [4, 0]


def test_scale_that_is_still_there_is_told():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights, scaled=1)
        run.clip(weights, 1.0, scaled=4)
        run.step(optimizer)
    assert any("loss scale in 5 of 5 calls" in words for words in wrong(section_of(run)))


def test_unscaled_gradients_are_told():
    run, weights, optimizer = trained()
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights)
        run.event("unscale", UNSCALE, optimizer=optimizer)
        run.clip(weights, 1.0)
        run.step(optimizer)
    assert any("unscale_" in one.text for one in section_of(run).checks if one.is_right)


def test_parameters_that_the_clip_leaves_out_are_counted():
    run, weights, optimizer = trained(parameters=5)
    for _ in range(5):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights[:2], 1.0)
        run.step(optimizer)
    assert wrong(section_of(run)) == ["2 of the 5 parameters that the step uses"]


def test_norm_that_spreads_is_told_with_its_first_step():
    run, weights, optimizer = trained()
    for turn in range(6):
        run.zero(optimizer)
        run.backward(weights, size=math.nan if turn == 3 else 1.0)
        run.clip(weights, 1.0)
        run.step(optimizer)
    section = section_of(run)
    assert [point.step for point in section.broken] == [3]
    assert any("first in step 3" in words for words in wrong(section))
    assert section.norms.count == 5


def test_accumulation_that_clips_each_pass_is_told():
    run, weights, optimizer = trained()
    for _ in range(4):
        run.zero(optimizer)
        for _ in range(3):
            run.backward(weights)
            run.clip(weights, 1.0)
        run.step(optimizer)
    assert any("another backward" in words for words in wrong(section_of(run)))


def test_limit_that_changes_is_told_with_its_ends():
    run, weights, optimizer = trained()
    for limit in (1.0, 0.5, 0.25):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights, limit)
        run.step(optimizer)
    section = section_of(run)
    assert (section.limit, section.limits) == (0.25, (0.25, 1.0))
    expected = [limit / (2 + 1e-6) for limit in (1.0, 0.5, 0.25)]
    assert [point.coefficient for point in section.points] == pytest.approx(expected)


def test_call_that_only_measures_clips_nothing():
    section = section_of(healthy_loop(max_norm=math.inf))
    assert section.method is None
    assert section.advice.limit == 3.0


def test_run_without_a_clip_tells_what_one_would_do():
    run, weights, optimizer = trained()
    for size in (1.0, 2.0, 3.0):
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.step(optimizer, norm=2 * size)
    section = section_of(run)
    assert (section.method, section.limit) == (None, None)
    assert [point.norm for point in section.points] == [2.0, 4.0, 6.0]
    assert section.sweep


def test_recording_without_a_step_tells_nothing():
    run, _, _ = trained()
    assert Clipping.of(run.recording()) is None
