"""GS316, judged from loops whose last micro-batches join the next window."""

import pytest

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run


def loop(batches, window=4, *, epochs=5, has_loader=False, counts_on=False, divided=None):
    """Epochs of so many batches, with a step after each window of the epoch, or of the run."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    position = 0
    for _ in range(epochs):
        if has_loader:
            run.event("epoch", 9, subject="loader", batches=batches)
        for batch in range(batches):
            position += 1
            run.backward(weights, line=11, divided=window if divided is None else divided)
            if (position if counts_on else batch + 1) % window == 0:
                run.step(sgd, line=12)
                run.zero(sgd, line=13)
    return run


def said(run):
    return [(one.rule, one.location.line) for one in judge(run.recording()).findings]


@pytest.mark.parametrize("has_loader", [True, False])
def test_rest_of_every_epoch_is_found_at_the_backward(has_loader):
    (found,) = loop(7, has_loader=has_loader).findings("GS316")
    assert (found.severity, found.location.line, found.count) == ("warning", 11, 4)
    evidence = dict(found.evidence)
    assert (evidence["passes_of_first_step"], evidence["passes_each_step"]) == (4, 7)


def test_loader_tells_it_without_a_divisor():
    assert ("GS316", 11) in said(loop(7, has_loader=True, divided=1))
    assert ("GS316", 11) not in said(loop(7, divided=1))


@pytest.mark.parametrize(("epochs", "found"), [(3, False), (4, True)])
def test_three_later_steps_are_needed(epochs, found):
    assert (("GS316", 11) in said(loop(7, epochs=epochs))) == found


@pytest.mark.parametrize(
    "chosen",
    [{"batches": 8}, {"batches": 4}, {"batches": 7, "counts_on": True}],
    ids=["whole windows", "one window an epoch", "windows over epochs"],
)
def test_even_windows_are_right(chosen):
    assert not said(loop(**chosen))


def test_several_windows_an_epoch_are_the_other_rules():
    assert said(loop(10)) == [("GS305", 11)]


def test_batches_that_grow_with_their_divisor_are_right():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for size in (4, 6, 6, 6, 6):
        for _ in range(size):
            run.backward(weights, line=11, divided=size)
        run.step(sgd, line=12)
        run.zero(sgd, line=13)
    assert not said(run)
