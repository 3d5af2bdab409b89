"""GS103 and GS104 of steps that were not watched closely."""

import math
from dataclasses import replace

import pytest

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run
from tests.rules.captured_steps.captured_run import CapturedRun

FINE = (1.0, 0)


def training(*steps: tuple[float, int], run: Run | None = None) -> Run:
    """A training whose steps have such losses, and so many gradients that are not finite."""
    run = run or Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for loss, broken in steps:
        run.zero(sgd, line=9)
        run.backward(weights, line=10, loss=loss)
        run.step(sgd, line=11, nonfinite=broken)
    return run


@pytest.mark.parametrize(("loss", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_a_loss_that_stays_broken_is_told_where_it_begins(loss, word):
    (found,) = training(FINE, FINE, (loss, 4), (math.nan, 4)).findings("GS104")
    assert (found.severity, found.step, found.location.line, found.count) == ("error", 2, 10, 2)
    assert f"the loss of step 2 is {word}" in found.message
    assert [position.line for position in found.related] == [11]
    assert "--tensors-at" not in found.remedy


def test_a_gradient_that_breaks_first_explains_the_loss_after_it():
    (found,) = training(FINE, (1.0, 2), (math.nan, 4)).findings("GS103")
    assert (found.step, found.location.line) == (1, 10)


@pytest.mark.parametrize("loss", [1.0, math.nan])
def test_steps_that_are_left_out_by_the_optimizer_itself_break_nothing(loss):
    for code in ("GS103", "GS104"):
        assert not training(FINE, (loss, 4), FINE).findings(code)


def test_a_loss_without_a_broken_step_is_no_finding():
    assert not training(FINE, (math.nan, 0)).findings("GS104")


def test_steps_in_which_nothing_was_measured_tell_nothing():
    run = training(FINE, (math.nan, 4))
    recording = run.recording()
    events = tuple(
        replace(one, numbers=tuple(n for n in one.numbers if n[0] not in ("nonfinite", "norm")))
        for one in recording.events
    )
    assert not judge(replace(recording, events=events)).findings


def test_a_run_with_looks_can_be_looked_at_there():
    run = CapturedRun()
    weights = run.model("other", 1)
    run.capture_step({weights[0]: "gradient"}, line=5)
    run.step(run.optimizer(weights, line=2), line=6)
    (found,) = training(FINE, (math.nan, 4), run=run).findings("GS104")
    assert "--tensors-at 2" in found.remedy
