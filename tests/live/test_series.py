"""A number over many steps, in few columns."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.columns import Extreme
from gradscope.analysis.live_run import Series

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=2_000)


def series(of_several, values, start=0):
    made = Series(of_several)
    for step, value in enumerate(values, start):
        made.add(step, value)
    return made


def test_few_numbers_have_a_column_each():
    course = series("mean", [3.0, 1.0, 2.0]).course(60)
    assert course.cells == (3.0, 1.0, 2.0)
    assert course.ends == (3.0, 2.0)
    assert course.lowest == Extreme(step=1, value=1.0)
    assert course.highest == Extreme(step=0, value=3.0)


def test_many_numbers_share_columns():
    values = [float(position) for position in range(1_000)]
    assert series("largest", values).course(10).cells[-1] == 999.0
    cells = series("mean", values).course(10).cells
    assert len(cells) == 10
    assert list(cells) == sorted(cells)
    assert cells[0] == pytest.approx(50, abs=15)
    assert cells[-1] == pytest.approx(950, abs=15)


@given(NUMBERS, st.integers(1, 300))
def test_no_extreme_is_lost(values, width):
    course = series("largest", values).course(width)
    assert 1 <= len(course.cells) <= min(width, len(values))
    assert max(course.cells) == max(values) == course.highest.value
    assert course.lowest.value == min(values)
    assert values[course.lowest.step] == course.lowest.value
    assert (course.ends[0], course.ends[-1]) == (values[0], values[-1])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=2_000))
def test_one_column_is_the_mean_of_all(values):
    (cell,) = series("mean", values).course(1).cells
    assert cell == pytest.approx(math.fsum(values) / len(values), rel=1e-6, abs=1e-3)


def test_memory_does_not_grow_with_the_run():
    one, other = (series("mean", [1.0] * count) for count in (1_000, 50_000))
    assert len(other._buckets) <= 2 * len(one._buckets)
    assert sys.getsizeof(other._buckets) < 10_000


@pytest.mark.parametrize("of_several", ["mean", "largest"])
def test_broken_numbers_stay_visible(of_several):
    values = [1.0] * 700
    values[300] = math.nan
    course = series(of_several, values).course(7)
    assert [math.isnan(cell) for cell in course.cells].count(True) == 1
    assert (course.nonfinite, course.first_nonfinite) == (1, 300)
    assert course.highest == Extreme(step=0, value=1.0)


def test_what_was_not_measured_has_no_column():
    made = series("largest", [None, 2.0, None, 4.0])
    assert made.course(9).cells == (2.0, 4.0)
    assert made.last == 4.0
    assert Series("mean").last is None
    assert Series("mean").course(9).cells == ()
