"""Many steps in a few columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.columns import Columns, course, held
from tests.report.run.conftest import adversarial, plain

NUMBERS = st.floats(-1e6, 1e6)


def positions(columns):
    return [columns.position(step) for step in columns.steps]


@given(st.integers(1, 300), st.integers(1, 100))
def test_columns_hold_neighbours_and_equally_many(steps, width):
    columns = Columns(range(steps), width)
    found = positions(columns)
    counts = [found.count(position) for position in range(columns.count)]
    assert columns.count == min(steps, width)
    assert found == sorted(found)
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    assert columns.widest == max(counts)


def test_each_step_has_a_column_where_there_is_room():
    assert positions(Columns([3, 5, 9], 40)) == [0, 1, 2]


def test_first_steps_of_columns():
    assert Columns(range(10, 20), 5).first_steps == (10, 12, 14, 16, 18)


def test_optimizers_that_take_turns_share_columns(run_of):
    run = run_of(adversarial(rounds=10))
    assert Columns.over(run, 80).count == 20
    assert Columns.over(run, 8).count == 8


def test_no_steps_no_columns(run_of):
    assert Columns([], 20).count == 0
    assert Columns([], 20).widest == 0
    assert Columns.over(run_of(plain(1)), 20).count == 1


@given(st.lists(NUMBERS, min_size=1, max_size=50), st.integers(1, 10))
def test_largest_and_mean_of_each_column(values, width):
    columns = Columns(range(len(values)), width)
    found = positions(columns)
    split = [
        [value for value, position in zip(values, found, strict=True) if position == column]
        for column in range(columns.count)
    ]
    measured = list(enumerate(values))
    assert columns.largest(measured) == tuple(map(max, split))
    assert columns.mean(measured) == pytest.approx([math.fsum(c) / len(c) for c in split])


@pytest.mark.parametrize("order", [(1.0, math.nan, 2.0), (math.nan, 1.0), (1.0, math.nan)])
def test_a_nan_in_a_column_is_kept(order):
    (largest,) = Columns(range(len(order)), 1).largest(list(enumerate(order)))
    (mean,) = Columns(range(len(order)), 1).mean(list(enumerate(order)))
    assert math.isnan(largest)
    assert math.isnan(mean)


def test_an_infinity_is_the_largest():
    assert Columns(range(2), 1).largest([(0, math.inf), (1, 3.0)]) == (math.inf,)


def test_gaps_between_measured_steps_are_filled_and_ends_are_not():
    assert held([None, 1.0, None, None, 2.0, None], {1, 4}) == (None, 1.0, 1.0, 1.0, 2.0, None)
    assert held([None, None], ()) == (None, None)
    assert held([], ()) == ()


def test_a_measured_absence_stays_a_gap():
    measured = [(0, 1.0), (1, None), (3, None), (4, 2.0)]
    assert Columns(range(6), 6).largest(measured) == (1.0, None, None, None, 2.0, None)
    assert Columns(range(6), 1).largest(measured) == (2.0,)


def test_steps_that_are_not_shown_count_for_nothing():
    assert Columns([0, 1], 2).largest([(0, 1.0), (7, 9.0)]) == (1.0, None)


def test_course_tells_extremes_and_what_is_not_finite():
    told = course([(0, 3.0), (4, math.nan), (5, 1.0), (6, math.inf), (9, 2.0)], ())
    assert told.ends == (3.0, 2.0)
    assert (told.lowest.value, told.lowest.step) == (1.0, 5)
    assert (told.highest.value, told.highest.step) == (3.0, 0)
    assert (told.nonfinite, told.first_nonfinite) == (2, 4)


def test_course_of_one_number_and_of_none():
    assert course([(0, 3.0)], ()).ends == (3.0,)
    assert course([(0, math.nan)], ()).lowest is None
    assert course([], ()).ends == ()
