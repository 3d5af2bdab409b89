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


def conditional(does_step, *, batches=24, divided=4.0, reduction=1):
    """A loop over micro-batches that steps and zeroes where a condition of their number holds."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for batch in range(batches):
        run.backward(weights, line=11, divided=divided, reduction=reduction)
        if does_step(batch):
            run.step(sgd, line=13)
            run.zero(sgd, line=14)
    return run


@pytest.mark.parametrize("divided", [3.0, 4.0, 8.0])
def test_steps_after_all_micro_batches_but_the_last_are_an_error(divided):
    run = conditional(lambda batch: (batch + 1) % divided, divided=divided)
    (found,) = run.findings("GS313")
    assert (found.severity, found.location.line) == ("error", 13)
    assert dict(found.evidence)["loss_divided_by"] == divided
    assert [position.line for position in found.related] == [11]


def test_it_does_not_matter_where_the_count_begins():
    (found,) = conditional(lambda batch: batch % 4).findings("GS313")
    assert found.severity == "error"


@pytest.mark.parametrize("divided", [20.0, 50.0])
def test_a_small_weight_of_the_loss_is_fine(divided):
    """Of so long a period, a step after each micro-batch misses too little to be told apart."""
    run = conditional(lambda batch: True, batches=100, divided=divided)
    assert "GS313" not in codes(run)


@pytest.mark.parametrize(
    ("does_step", "chosen"),
    [
        (lambda batch: (batch + 1) % 4 == 0, {}),
        (lambda batch: (batch + 1) % 2, {"divided": 2.0}),
        (lambda batch: (batch + 1) % 3, {}),
        (lambda batch: (batch + 1) % 4, {"batches": 7}),
        (lambda batch: (batch + 1) % 4, {"reduction": 0}),
        (lambda batch: (batch + 1) % 4 == 0 or batch == 21, {}),
        (lambda batch: batch % 6 in (3, 5), {}),  # a window, and the rest of an epoch
    ],
    ids=["right", "two", "other number", "too short", "a sum", "end of an epoch", "short epochs"],
)
def test_other_conditions_are_fine(does_step, chosen):
    assert not conditional(does_step, **chosen).findings("GS313")
