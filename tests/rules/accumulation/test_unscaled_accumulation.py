"""GS303, judged from loops as users write them."""

import pytest

from tests.rules.accumulation.runs import Run

MEAN, SUM = 1, 0


def loop(passes=4, *, class_name="SGD", windows=6, lengths=(), **numbers):
    """A loop that steps after so many passes of one line, or after as many as `lengths` say."""
    run = Run()
    weights = run.model("model", 4)
    optimizer = run.optimizer(weights, class_name)
    for count in lengths or [passes] * windows:
        run.zero(optimizer, line=10)
        for _ in range(count):
            run.backward(weights, line=11, **{"reduction": MEAN, "rows": 8, **numbers})
        run.step(optimizer, line=12)
    return run


@pytest.mark.parametrize(
    ("class_name", "severity"), [("SGD", "warning"), ("AdamW", "note"), ("Lion", "note")]
)
def test_a_sum_of_means_is_found_at_the_backward(class_name, severity):
    (found,) = loop(class_name=class_name).findings("GS303")
    assert (found.severity, found.location.line, found.count) == (severity, 11, 6)
    assert [position.line for position in found.related] == [12]
    assert dict(found.evidence)["passes"] == 4


@pytest.mark.parametrize(
    "chosen",
    [
        {"divided": 4},
        {"divided": 8},
        {"divided": 4 / 9, "multiplied": 9},
        {"reduction": SUM},
        {"passes": 1},
    ],
    ids=["divided by k", "divided by something", "also multiplied", "a sum", "one pass a step"],
)
def test_scaled_accumulation_and_sums_and_single_passes_are_fine(chosen):
    assert not loop(**chosen).findings("GS303")


def test_a_loss_of_unknown_kind_is_not_accused():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        run.zero(sgd, line=10)
        for _ in range(4):
            run.backward(weights, line=11)
        run.step(sgd, line=12)
    assert not run.findings("GS303")


def test_two_losses_of_two_lines_are_fine():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        run.zero(sgd, line=10)
        run.backward(weights, line=11, reduction=MEAN)
        run.backward(weights, line=12, reduction=MEAN)
        run.step(sgd, line=13)
    assert not run.findings("GS303")


def test_tasks_with_heads_of_their_own_are_fine():
    run = Run()
    trunk, one, two = run.model("trunk", 4), run.model("one", 1), run.model("two", 2)
    sgd = run.optimizer((*trunk, *one, *two))
    for _ in range(6):
        run.zero(sgd, line=10)
        for head in (one, two):
            run.backward((*trunk, *head), line=11, reduction=MEAN)
        run.step(sgd, line=13)
    assert not run.findings("GS303")


def test_the_shorter_last_window_of_an_epoch_changes_nothing():
    (found,) = loop(lengths=[4, 4, 4, 4, 2, 4, 4, 4, 4, 2]).findings("GS303")
    assert (found.count, dict(found.evidence)["passes"]) == (10, 4)


def test_a_number_of_passes_that_varies_is_no_window():
    assert not loop(lengths=[3, 7, 5, 9, 2, 6]).findings("GS303")


def test_warm_up_without_accumulation_hides_nothing():
    assert loop(lengths=[1, 1, 1, 4, 4, 4, 4, 4]).findings("GS303")
    assert not loop(lengths=[1, 1, 1, 1, 1, 4, 4, 4]).findings("GS303")


def test_missing_zero_grad_is_not_taken_for_accumulation():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        run.backward(weights, line=11, reduction=MEAN)
        run.step(sgd, line=12)
    assert run.findings("GS301")


def test_a_constant_factor_above_1_is_no_division():
    (found,) = loop(divided=1 / 9, multiplied=9).findings("GS303")
    assert found.severity == "warning"
