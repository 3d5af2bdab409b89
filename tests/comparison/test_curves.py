"""Loss and norm of runs on one axis, and where they part."""

import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.comparison.tolerance import Tolerance
from tests.comparison.sides import compared, of_run, of_step

values = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)


def run(losses, **options):
    return of_run({"w": [1.0] * len(losses)}, losses, **options)


def loss_of(comparison):
    (found,) = [curve for curve in comparison.curves if curve.kind == "loss"]
    return found


def parting(base, other, **tolerance):
    return loss_of(compared(base, other, tolerance=Tolerance(**tolerance))).partings[1]


def test_curves_are_the_numbers_of_the_recordings():
    losses, norms = [3.0, 2.0, 1.0], [5.0, 6.0, 7.0]
    found = compared(of_run({"w": norms}, losses), run([3.0, 2.5]))
    of_base = {curve.kind: curve.sides[0] for curve in found.curves}
    assert {kind: (one.steps, one.values) for kind, one in of_base.items()} == {
        "loss": ((0, 1, 2), (3.0, 2.0, 1.0)),
        "norm": ((0, 1, 2), (5.0, 6.0, 7.0)),
    }
    assert loss_of(found).sides[1].values == (3.0, 2.5)


def test_equal_runs_do_not_part():
    found = parting(run([3.0, 2.0]), run([3.0, 2.0]))
    assert (found.first_different, found.first_beyond, found.increase) == (None, None, 0.0)


def test_first_steps_of_another_number_and_of_one_beyond_the_tolerance():
    found = parting(run([2.0] * 5), run([2.0, math.nextafter(2.0, 3), 2.19, 2.21, 2.0]))
    assert (found.common, found.first_different, found.first_beyond) == (5, 1, 3)


def test_nan_parts_from_a_number_and_not_from_nan():
    found = parting(run([2.0, math.nan, 1.0]), run([2.0, math.nan, math.nan]))
    assert (found.first_different, found.first_beyond) == (2, 2)


@given(base=values, other=values)
def test_ends_are_means_over_the_last_tenth_of_the_common_steps(base, other):
    found = parting(run(base), run(other))
    common = min(len(base), len(other))
    last = math.ceil(common / 10)
    assert found.common == common
    assert found.base_end == pytest.approx(fmean(base[common - last : common]))
    assert found.end == pytest.approx(fmean(other[common - last : common]))


def test_a_loss_in_parts_is_their_sum():
    """Accumulated over four backward passes, each with a quarter of it."""
    whole, parts = run([2.0, 1.0]), run([2.0, 1.0], backwards=4)
    found = compared(whole, parts)
    assert loss_of(found).sides[1].values == (2.0, 1.0)
    assert [(one.what, one.values) for one in found.differences] == [
        ("backward passes per step", ("1", "4"))
    ]


def test_what_is_left_of_a_loss_near_zero_is_no_increase():
    """From 1.0 to 1e-7 in one run, to 3e-7 in the other: both are done."""
    found = parting(run([1.0] + [1e-7] * 20), run([1.0] + [3e-7] * 20))
    assert (found.first_beyond, found.increase < 0.001) == (None, True)


def test_steps_before_a_judged_one_have_curves_and_a_single_step_has_none():
    assert compared(of_step({"w": 1.0}), of_step({"w": 1.0})).curves == ()


def test_runs_of_other_steps_are_compared_where_they_meet():
    found = loss_of(compared(run([1.0] * 5), run([2.0] * 5, first=3)))
    assert (found.sides[1].steps, found.partings[1].common) == ((3, 4, 5, 6, 7), 2)
