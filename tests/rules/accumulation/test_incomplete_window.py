"""GS305, judged from loops over epochs whose length the window divides, or not."""

import pytest

from tests.rules.accumulation.runs import Run


def loop(
    batches,
    window=4,
    *,
    epochs=3,
    zero_at_start=False,
    steps_at_end=False,
    counter="epoch",
    offset=1,
):
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
            done = position if counter == "run" else batch + offset
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


def test_steps_after_the_first_batch_of_each_epoch_are_found():
    (found,) = loop(13, offset=0).findings("GS305")
    assert (found.severity, found.location.line, found.count) == ("warning", 12, 3)
    assert "(i + 1) % 4 == 0" in found.remedy


def test_a_first_step_after_one_batch_is_noted():
    run = loop(12, offset=0)
    (left,) = run.findings("GS305")
    assert (left.severity, left.location.line) == ("warning", 11)  # three are left at the end
    run.step(0, line=15)
    (early,) = run.findings("GS305")
    assert (early.severity, early.location.line, early.step) == ("note", 12, 0)


def test_steps_of_one_batch_at_the_end_of_an_epoch_are_fine():
    assert not loop(13, steps_at_end=True).findings("GS305")


def test_a_first_batch_whose_loss_is_not_divided_is_a_window_of_its_own():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for window in (1, 4, 4):
        run.event("epoch", 9, subject="loader", batches=4)
        for batch in range(4):
            run.backward(weights, line=11, divided=window)
            if (batch + 1) % window == 0:
                run.step(sgd, line=12)
                run.zero(sgd, line=13)
    assert not run.findings("GS305")


def epochs_by_hand(*, first, zero_at_start):
    """Three epochs of 10 micro-batches from a range; the first steps after so many."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(3):
        if zero_at_start:
            run.zero(sgd, line=8)
        for batch in range(10):
            run.backward(weights, line=11)
            if batch + 1 in (first, first + 4):
                run.step(sgd, line=12)
                run.zero(sgd, line=13)
    return run


def test_a_first_window_of_one_more_has_no_leak():
    """`if i % 4 == 0 and i > 0` takes 5, then 4."""
    (found,) = epochs_by_hand(first=5, zero_at_start=True).findings("GS305")
    assert "are dropped" in found.message or "is dropped" in found.message


def test_later_windows_of_more_have_a_leak():
    (found,) = epochs_by_hand(first=4, zero_at_start=False).findings("GS305")
    assert "leak into it" in found.message
