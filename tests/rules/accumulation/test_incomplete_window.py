"""GS305, judged from loops over epochs whose length the window divides, or not."""

import pytest

from tests.rules.accumulation.runs import Run


def loop(batches, window=4, *, epochs=3, zero_at_start=False, steps_at_end=False, counter="epoch"):
    """Epochs of so many batches, with a step after each window of the epoch, or of the run."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    position = 0
    for _ in range(epochs):
        if zero_at_start:
            run.zero(sgd, line=8)
        run.event("epoch", 9, subject="loader", batches=batches)
        for batch in range(batches):
            position += 1
            run.backward(weights, line=11, divided=window)
            done = position if counter == "run" else batch + 1
            if done % window == 0 or (steps_at_end and batch + 1 == batches):
                run.step(sgd, line=12)
                run.zero(sgd, line=13)
    return run


def test_batches_that_are_zeroed_at_the_start_of_an_epoch_are_dropped():
    (found,) = loop(10, zero_at_start=True).findings("GS305")
    assert (found.severity, found.location.line) == ("warning", 11)
    assert [position.line for position in found.related] == [8]
    evidence = dict(found.evidence)
    assert (evidence["passes_dropped"], evidence["times"], evidence["passes"]) == (6, 3, 30)


def test_batches_that_stay_leak_into_the_next_epoch():
    (leak,) = loop(10).findings("GS305")
    assert (leak.severity, leak.location.line, leak.count) == ("warning", 11, 2)
    assert dict(leak.evidence)["passes_with_leak"] == 6


@pytest.mark.parametrize("zero_at_start", [True, False])
def test_an_epoch_of_whole_windows_is_fine(zero_at_start):
    assert not loop(12, zero_at_start=zero_at_start).findings("GS305")


def test_a_step_at_the_end_of_the_epoch_is_fine():
    assert not loop(10, steps_at_end=True).findings("GS305")


def test_windows_that_go_on_over_epochs_are_fine():
    assert not loop(10, counter="run", epochs=2).findings("GS305")


def test_a_run_that_ends_within_an_epoch_lost_nothing():
    run = loop(12)
    run.event("epoch", 9, subject="loader", batches=12)
    run.backward((0, 1, 2, 3), line=11, divided=4)
    assert not run.findings("GS305")


def test_what_is_left_at_the_end_of_the_only_epoch_is_dropped():
    (found,) = loop(10, epochs=1).findings("GS305")
    assert (found.location.line, found.related) == (11, ())
    assert dict(found.evidence)["passes_dropped"] == 2
