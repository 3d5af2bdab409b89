"""GS313, judged from loops as users write them."""

import math

import pytest

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run


def loop(*, divided=4.0, source="loss.backward()", zero_every=1, reduction=1, passes=1, steps=12):
    """A loop that divides its loss."""
    run = Run()
    run.sources[11] = source
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for step in range(steps):
        if step % zero_every == 0:
            run.zero(sgd, line=10)
        for _ in range(passes):
            run.backward(weights, line=11, divided=divided, reduction=reduction)
        run.step(sgd, line=12)
    return run


def codes(run):
    return {one.rule: one.severity for one in judge(run.recording()).findings}


@pytest.mark.parametrize(
    "source",
    [
        "(loss / ACCUM_STEPS).backward()",
        "(loss / grad_acc).backward()",
        "(loss / n_micro).backward()",
    ],
)
def test_a_line_that_speaks_of_accumulation_is_a_warning(source):
    (found,) = loop(source=source).findings("GS313")
    assert (found.severity, found.location.line, found.count) == ("warning", 11, 12)
    assert [position.line for position in found.related] == [12]


def test_zeroing_every_k_steps_says_that_it_was_meant():
    """What piles up between is a consequence."""
    assert codes(loop(zero_every=4)) == {"GS313": "warning"}


def test_zeroing_every_other_number_of_steps_says_nothing():
    assert "GS313" not in codes(loop(zero_every=3))


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"divided": 1},
        {"divided": 2.5},
        {"divided": math.nan},
        {"divided": math.inf},
        {"reduction": 0},
        {"passes": 4},
    ],
    ids=["a weight", "not divided", "no whole number", "NaN", "times 0", "a sum", "accumulated"],
)
def test_other_divisions_are_fine(chosen):
    source = "loss.backward()" if not chosen else "(loss / ACCUM_STEPS).backward()"
    assert "GS313" not in codes(loop(source=source, **chosen))
