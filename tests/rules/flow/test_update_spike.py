import math
from dataclasses import replace

import pytest

from gradscope.rules.engine import judge
from gradscope.rules.flow.update_spike import UpdateSpike
from tests.rules.clipping.clipped_run import ClippedRun
from tests.rules.flow.captured_evidence import found_by

STEPS, SPIKE = 120, 80


def calm(step):
    return 1.0 + 0.05 * (step % 5)


def run_with(factor, *, jump=SPIKE + 1, lasting=10, rates=None, every=10):
    """A training whose second parameter has a large update, and whose loss jumps at a step."""
    run = ClippedRun()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for step in range(STEPS):
        is_high = jump is not None and jump <= step < jump + lasting
        run.zero(optimizer)
        run.backward(weights, loss=9.0 if is_high else calm(step))
        run.step(optimizer, **({} if rates is None else {"lr": rates(step)}))
    recording = run.recording()

    def updated(stat):
        rate = 1.0 if rates is None else rates(stat.step)
        times = factor if stat.step == SPIKE and stat.parameter == 1 else 1.0
        is_measured = stat.step < 3 or stat.step % every == 0
        return replace(stat, update_norm=rate * times * calm(stat.step) if is_measured else None)

    return replace(recording, parameter_stats=tuple(map(updated, recording.parameter_stats)))


def test_a_large_update_before_the_loss_jumps_names_the_layer_that_led():
    (found,) = found_by(UpdateSpike, run_with(6.0))
    assert (found.severity, found.step) == ("warning", SPIKE)
    assert found.parameters[0] == "model.1.weight" or found.parameters[0].endswith("1")
    assert dict(found.evidence)["steps_before_loss"] == 1
    assert len(found.parameters) == 1


@pytest.mark.parametrize(("factor", "count"), [(2.4, 0), (3.0, 1)])
def test_factor_decides(factor, count):
    """One of two parameters of equal norm: 2.65 times its update makes twice the norm of both."""
    assert len(found_by(UpdateSpike, run_with(factor))) == count


def times_usual():
    (found,) = found_by(UpdateSpike, run_with(6.0))
    return dict(found.evidence)["times_usual"]


def test_the_limit_of_the_factor_is_reached_on_it():
    number = times_usual()
    assert found_by(UpdateSpike, run_with(6.0), factor=number)
    assert not found_by(UpdateSpike, run_with(6.0), factor=math.nextafter(number, math.inf))


@pytest.mark.parametrize(("least", "count"), [(9, 1), (10, 1), (11, 0)])
def test_updates_before_the_first_judged_one_are_counted(least, count):
    """Those of the steps 0, 1, 2 and every tenth come before the one of step 80: ten of them."""
    assert len(found_by(UpdateSpike, run_with(6.0), least_history=least)) == count


@pytest.mark.parametrize(("window", "count"), [(5, 1), (6, 1), (7, 0)])
def test_updates_of_the_window_alone_are_compared(window, count):
    """An update as large, seven measured steps before, is none that this one goes beyond."""
    recording = run_with(6.0)
    early = SPIKE - 70
    large = {
        stat.parameter: stat.update_norm for stat in recording.parameter_stats if stat.step == SPIKE
    }
    changed = tuple(
        replace(stat, update_norm=large[stat.parameter]) if stat.step == early else stat
        for stat in recording.parameter_stats
    )
    spiked = replace(recording, parameter_stats=changed)
    assert len(found_by(UpdateSpike, spiked, window=window, least_history=8)) == count


@pytest.mark.parametrize(("jump", "count"), [(SPIKE, 0), (SPIKE + 12, 1), (SPIKE + 13, 0)])
def test_the_loss_must_follow(jump, count):
    assert len(found_by(UpdateSpike, run_with(6.0, jump=jump))) == count


@pytest.mark.parametrize(("lasting", "count"), [(2, 0), (3, 1)])
def test_a_loss_of_a_batch_of_its_own_kind_is_no_consequence(lasting, count):
    assert len(found_by(UpdateSpike, run_with(6.0, lasting=lasting))) == count


def test_a_large_update_with_a_calm_loss_is_healthy():
    assert not found_by(UpdateSpike, run_with(6.0, jump=None))


def test_a_learning_rate_that_rises_is_healthy():
    rising = run_with(1.0, rates=lambda step: 0.1 if step < SPIKE else 1.0)
    assert not found_by(UpdateSpike, rising)


def test_few_measured_updates_are_not_judged():
    reason = found_by(UpdateSpike, run_with(6.0, every=60), reason=True)
    assert "more than 5 are needed" in reason


def test_it_explains_the_gradient_that_comes_after():
    codes = [one.rule for one in judge(run_with(6.0)).findings]
    assert "GS116" in codes
