"""GS304, with the weights that a mean of means gives to tokens as the oracle."""

import pytest

from tests.rules.accumulation.runs import Run


def loop(*windows, counted="tokens", reduction=1):
    """A step for every tuple of counts, one pass each."""
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for counts in windows:
        run.zero(adam, line=10)
        for count in counts:
            numbers = {"reduction": reduction, counted: count}
            run.backward(weights, line=11, divided=len(counts), **numbers)
        run.step(adam, line=12)
    return run


@pytest.mark.parametrize("counted", ["tokens", "rows"])
def test_counts_that_differ_are_found_at_the_backward(counted):
    (found,) = loop((5, 74, 6, 30), (5, 74, 6, 30), counted=counted).findings("GS304")
    assert (found.severity, found.location.line, found.count) == ("warning", 11, 2)
    evidence = dict(found.evidence)
    # A token of the smallest weighs 1/4 * 1/5, in one batch 1/115.
    assert evidence["deviation"] == pytest.approx((1 / 20) / (1 / 115) - 1)
    assert (evidence["smallest_count"], evidence["largest_count"]) == (5, 74)
    assert evidence["counted"] == counted


@pytest.mark.parametrize(
    ("counts", "is_found"),
    [((100, 100), False), ((91, 109), False), ((90, 110), True), ((50, 150), True)],
)
def test_a_tenth_is_tolerated(counts, is_found):
    # 100 / 91 is 1.099, 100 / 90 is 1.111.
    assert bool(loop(counts, counts, counts).findings("GS304")) is is_found


def test_sums_may_differ():
    assert not loop((5, 74), (5, 74), reduction=0).findings("GS304")


def test_a_smaller_last_batch_of_an_epoch_is_fine():
    assert not loop((32, 32), (32, 32), (32, 7), counted="rows").findings("GS304")


def test_unknown_counts_are_not_judged():
    assert not loop((5, 74), (5, 74), counted="characters").findings("GS304")


def test_tokens_count_before_rows():
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for _ in range(3):
        for rows in (2, 8):
            run.backward(weights, line=11, divided=2, reduction=1, tokens=64, rows=rows)
        run.step(adam, line=12)
        run.zero(adam, line=13)
    assert not run.findings("GS304")


def divided(*windows, reduction=0):
    """A step for every tuple of divisors, one pass each."""
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for divisors in windows:
        run.zero(adam, line=10)
        for divisor in divisors:
            run.backward(weights, line=11, divided=divisor, reduction=reduction, rows=8)
        run.step(adam, line=12)
    return run.findings("GS304")


def test_sums_that_are_divided_by_counts_of_their_own_are_means():
    (found,) = divided((20, 296, 24, 120), (20, 296, 24, 120))
    evidence = dict(found.evidence)
    # A window of 4 cancels: a token of the smallest weighs 1/20, in one batch 4 / 460.
    assert evidence["deviation"] == pytest.approx((1 / 20) / (4 / 460) - 1)
    assert (evidence["counted"], evidence["smallest_count"]) == ("targets", 5)


@pytest.mark.parametrize(
    "divisors",
    [(460, 460), (91.0, 109.0), (1.7, 3.2), (0.5, 4.0), (1, 20)],
    ids=["the total", "nearly even", "weights of losses", "factors", "some undivided"],
)
def test_sums_with_other_divisors_are_fine(divisors):
    assert not divided(divisors, divisors, divisors)
