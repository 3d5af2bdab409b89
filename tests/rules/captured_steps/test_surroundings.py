"""What the rest of a run tells of one of its backward passes."""

import pytest

from gradscope.rules.captured_steps.training import Training
from gradscope.rules.context import RuleContext
from tests.rules.captured_steps.captured_run import CapturedRun

GENERATOR, CRITIC = (0, 1), (2, 3)


@pytest.fixture
def run():
    """A script with two models of two parameters each."""
    run = CapturedRun()
    run.model("generator", 2)
    run.model("critic", 2)
    return run


def surroundings(run, position=0):
    recording = run.recording()
    return Training(RuleContext(recording)).surroundings(recording.captured_steps[position])


def reaches(*parameters):
    return dict.fromkeys(parameters, "gradient")


def test_a_backward_is_for_the_optimizer_that_steps_next(run):
    first, second = run.optimizer(GENERATOR), run.optimizer(CRITIC, line=4)
    run.capture_step(reaches(*CRITIC), line=5)
    run.step(second, line=6)
    run.capture_step(reaches(*GENERATOR, *CRITIC), line=7)
    run.step(first, line=8)
    assert surroundings(run, 0).stepped == {*CRITIC}
    assert surroundings(run, 1).stepped == {*GENERATOR}
    assert surroundings(run).held == {*GENERATOR, *CRITIC}


def test_optimizers_may_step_together(run):
    first, second = run.optimizer(GENERATOR), run.optimizer(CRITIC, line=4)
    for _ in range(2):
        run.capture_step(reaches(*GENERATOR), line=5)
        run.capture_step(reaches(*CRITIC), line=6)
        run.step(first, line=7)
        run.step(second, line=8)
    assert surroundings(run, 0).stepped == {*GENERATOR, *CRITIC}
    assert surroundings(run, 1).stepped == {*GENERATOR, *CRITIC}


def test_without_an_optimizer_a_backward_is_for_all(run):
    run.capture_step(reaches(*CRITIC), line=5)
    assert surroundings(run).stepped == {*GENERATOR, *CRITIC}


def test_what_is_erased_is_for_nobody(run):
    optimizer = run.optimizer(CRITIC)
    run.capture_step(reaches(*CRITIC), line=5)
    run.zero(optimizer, line=6)
    run.capture_step(reaches(*CRITIC), line=7)
    run.step(optimizer, line=8)
    erased, used = surroundings(run, 0), surroundings(run, 1)
    assert (erased.stepped, erased.is_stepped) == (frozenset(), False)
    assert (used.stepped, used.is_stepped) == ({*CRITIC}, True)


def test_a_step_that_the_scaler_skips_uses_nothing(run):
    optimizer = run.optimizer(CRITIC)
    run.capture_step(reaches(*CRITIC), line=5, scaled=1)
    run.event("scaler-step", 6, optimizer=optimizer, skipped=1)
    run.capture_step(reaches(*CRITIC), line=5, scaled=1)
    run.step(optimizer, line=6)
    run.capture_step(reaches(*CRITIC), line=5, scaled=1)
    run.step(optimizer, line=6)
    assert surroundings(run, 0).is_left_out
    assert not surroundings(run, 1).is_left_out


def test_losses_are_those_of_the_same_line(run):
    optimizer = run.optimizer(CRITIC)
    for step in range(30):
        run.capture_step(reaches(*CRITIC), line=5, loss=step)
        run.capture_step(reaches(*CRITIC), line=6, loss=-1.0)
        run.step(optimizer, line=7)
    assert surroundings(run, 2).losses == tuple(range(1, 22))


def test_what_dies_is_alive_up_to_then(run):
    optimizer = run.optimizer(CRITIC)
    for step in range(6):
        run.capture_step(
            {CRITIC[0]: "gradient" if step < 3 else "zero", CRITIC[1]: "gradient"}, line=5
        )
        run.step(optimizer, line=6)
        run.zero(optimizer, line=7)
    assert surroundings(run, 0).learning == {*CRITIC}
    assert surroundings(run, 2).alive == {*CRITIC}
    assert surroundings(run, 3).alive == {CRITIC[1]}
