"""How parameters change, at the limits and just inside of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.comparison.tolerance import Tolerance
from tests.comparison.sides import GivenGradient, changes, compared, of_run, of_step

norms = st.floats(min_value=1e-30, max_value=1e30)


def change(before, after, **options):
    """How one parameter of many changed; the other one is as it was."""
    base, other = (of_step({"a.weight": 1.0, "b.weight": one}) for one in (before, after))
    found = compared(base, other, **options)
    assert changes(found)["a.weight"] == "equal"
    return changes(found)["b.weight"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (2.0, 2.0, "equal"),
        (2.0, 2.0 * 1.0999, "within"),
        (2.0, 2.0 / 1.0999, "within"),
        (2.0, 2.0 * 1.1001, "norm"),
        (2.0, 2.0 / 1.1001, "norm"),
        (2.0, math.nextafter(2.0, 3.0), "within"),
        (2.0, GivenGradient(norm=math.nan, nonfinite=3), "non-finite"),
        (
            GivenGradient(norm=math.nan, nonfinite=3),
            GivenGradient(norm=math.nan, nonfinite=3),
            "equal",
        ),
        (
            GivenGradient(norm=math.inf, nonfinite=1),
            GivenGradient(norm=math.nan, nonfinite=3),
            "within",
        ),
        (GivenGradient(norm=math.inf, nonfinite=1), 2.0, "finite"),
        (2.0, GivenGradient(reach="none"), "lost"),
        (2.0, GivenGradient(reach="zero"), "zero"),
        (2.0, GivenGradient(reach="frozen"), "frozen"),
        (GivenGradient(reach="none"), GivenGradient(reach="none"), "none"),
        (GivenGradient(reach="zero"), GivenGradient(reach="none"), "none"),
        (GivenGradient(reach="frozen"), 2.0, "gained"),
        (GivenGradient(reach="zero"), 2.0, "gained"),
        (GivenGradient(reach="none"), GivenGradient(norm=math.nan, nonfinite=3), "non-finite"),
        (2.0, GivenGradient(norm=2.0, dims=(4, 1)), "reshaped"),
        (2.0, GivenGradient(norm=2.0, dtype="bfloat16", weight=10.0), "equal"),
        (2.0, GivenGradient(norm=2.0, weight=10.5), "within"),
    ],
)
def test_change(before, after, expected):
    assert change(before, after) == expected


@given(before=norms, after=norms, limit=st.floats(0.001, 10))
def test_tolerance_is_the_same_both_ways(before, after, limit):
    base, other = of_step({"a.weight": before}), of_step({"a.weight": after})
    tolerance = Tolerance(norm=limit)
    there = changes(compared(base, other, tolerance=tolerance))["a.weight"]
    back = changes(compared(other, base, tolerance=tolerance))["a.weight"]
    assert there == back
    larger = max(before, after) / min(before, after)
    if not math.isclose(larger, 1 + limit):
        expected = "equal" if before == after else "norm" if larger > 1 + limit else "within"
        assert there == expected


def test_new_and_gone_parameters_are_told_and_match_among_the_other_sides():
    base = of_step({"a.weight": 1.0, "old.weight": 1.0})
    second = of_step({"a.weight": 1.0, "new.x.weight": 1.0, "new.y.weight": 1.0})
    third = of_step({"a.weight": 1.0, "new.x.weight": 1.0, "other.y.bias": 1.0})
    found = compared(base, second, third)
    assert changes(found, 1) == {
        "a.weight": "equal", "old.weight": "missing", "new.x.weight": "new", "new.y.weight": "new",
    }  # fmt: skip
    assert changes(found, 2) == {
        "a.weight": "equal", "old.weight": "missing", "new.x.weight": "new", "other.y.bias": "new",
    }  # fmt: skip


def test_what_rounding_leaves_of_a_zero_may_be_anything():
    """As the bias before a normalisation: 1e-7 of its weight's gradient in one, 5e-7 in another."""
    sides = [of_step({"conv.weight": 1.0, "conv.bias": bias}) for bias in (1e-7, 5e-7)]
    assert changes(compared(*sides)) == {"conv.weight": "equal", "conv.bias": "rounding"}


def test_rounding_may_become_a_true_zero():
    sides = [
        of_step({"conv.weight": 1.0, "conv.bias": bias})
        for bias in (1e-7, GivenGradient(reach="zero"))
    ]
    assert changes(compared(*sides))["conv.bias"] == "rounding"


@pytest.mark.parametrize(("dtype", "expected"), [("float32", "norm"), ("bfloat16", "rounding")])
def test_shorter_types_round_more(dtype, expected):
    base = of_step({"conv.weight": 1.0, "conv.bias": 1e-7})
    other = of_step(
        {
            "conv.weight": GivenGradient(dtype=dtype),
            "conv.bias": GivenGradient(norm=1e-2, dtype=dtype),
        }
    )
    assert changes(compared(base, other))["conv.bias"] == expected


@pytest.mark.parametrize(
    ("biases", "expected"),
    [((2e-5, 2e-4), "rounding"), ((4e-5, 2e-4), "norm"), ((2e-5, 4e-4), "norm")],
)
def test_one_that_is_rounding_lets_the_other_be_somewhat_more(biases, expected):
    for pair in (biases, biases[::-1]):
        sides = [of_step({"conv.weight": 1.0, "conv.bias": bias}) for bias in pair]
        assert changes(compared(*sides))["conv.bias"] == expected


def test_small_gradients_all_over_a_module_are_no_rounding():
    """Near miss: a layer whose gradients vanish, and vanish more."""
    sides = [
        of_step({"far.weight": size, "far.bias": size, "near.weight": 1.0, "near.bias": 1.0})
        for size in (1e-9, 1e-12)
    ]
    assert changes(compared(*sides))["far.weight"] == "norm"
    assert changes(compared(*sides))["far.bias"] == "norm"


def test_a_gradient_that_falls_to_rounding_is_not_hidden_by_it():
    sides = [of_step({"conv.weight": 1.0, "conv.bias": bias}) for bias in (0.1, 1e-7)]
    assert changes(compared(*sides))["conv.bias"] == "norm"


def test_runs_are_compared_by_their_medians_over_common_steps():
    base = of_run({"w": [1.0, 1.0, 50.0, 1.0, 1.0]}, [1.0] * 5)
    other = of_run({"w": [1.0, 2.0, 2.0, 2.0]}, [1.0] * 4)
    (row,) = compared(base, other).parameters
    assert [side.norm for side in row.sides] == [1.0, 2.0]
    assert (row.pairs[1].ratio, row.pairs[1].first_difference) == (2.0, 1)


def test_a_parameter_that_gets_a_gradient_in_some_steps_has_one():
    """Optimizers take turns."""
    base = of_run({"w": [None, 1.0, None, 1.0]}, [1.0] * 4)
    other = of_run({"w": [None, 1.0, None, 1.0]}, [1.0] * 4)
    assert changes(compared(base, other)) == {"w": "equal"}
    never = of_run({"w": [None] * 4}, [1.0] * 4)
    assert changes(compared(base, never)) == {"w": "lost"}


def test_steps_that_are_not_finite_are_counted_and_do_not_move_the_median():
    base = of_run({"w": [1.0] * 5}, [1.0] * 5)
    other = of_run({"w": [1.0, math.nan, math.inf, 1.0, 1.0]}, [1.0] * 5)
    (row,) = compared(base, other).parameters
    assert (row.sides[1].norm, row.sides[1].nonfinite) == (1.0, 2)
    assert row.pairs[1].change == "non-finite"


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8))
def test_a_run_is_equal_to_itself(values):
    run = of_run({"w": values}, values)
    found = compared(run, run)
    assert changes(found) == {"w": "equal"}
    assert found.verdict.outcome == "passed"
