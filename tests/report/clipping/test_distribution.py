import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.clipping.limits import Distribution, histogram, quantile

positive = st.floats(min_value=1e-300, max_value=1e300)
some = st.lists(st.one_of(positive, st.just(0.0)), min_size=1, max_size=50)


def test_quantiles_lie_between_neighbours():
    values = [1.0, 2.0, 4.0, 8.0]
    assert quantile(values, 0.5) == 3.0
    assert quantile(values, 0.0) == 1.0
    assert quantile(values, 1.0) == 8.0


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=40))
def test_quartiles_are_those_of_the_standard_library(values):
    found = Distribution.of(values)
    expected = statistics.quantiles(values, n=4, method="inclusive")
    assert found.quantiles[:3] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (found.least, found.greatest) == (min(values), max(values))
    assert found.mean == pytest.approx(statistics.fmean(values))


def test_nothing_has_no_distribution():
    assert Distribution.of([]) is None
    assert histogram([]) == ()


@given(some)
def test_every_number_is_in_one_bin_and_the_bins_are_few(values):
    bins = histogram(values)
    assert sum(one.count for one in bins) == len(values)
    assert len(bins) <= 14
    ends = [one.low for one in bins if one.high]
    assert ends == sorted(ends)
    least = min((value for value in values if value), default=None)
    if least is not None:
        assert ends[0] <= least * (1 + 1e-5)


def test_numbers_of_one_size_have_bins_of_equal_width():
    bins = histogram([2.2, 2.4, 3.0, 4.9, 8.9])
    assert {round(one.high - one.low, 9) for one in bins} == {1.0}


def test_zeros_have_a_bin_of_their_own():
    first, *_ = histogram([0.0, 0.0, 1.0])
    assert (first.high, first.count) == (0.0, 2)


def test_edges_are_round_numbers():
    bins = histogram([0.013, 0.2, 0.9, 3.0])
    assert [one.low for one in bins] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    assert math.isclose(bins[-1].high, 5.0)


@pytest.mark.parametrize("power", [1e-6, 1.0, 1e6])
def test_a_number_just_below_a_power_of_ten_has_a_bin(power):
    least = math.nextafter(power, 0)
    bins = histogram([least, 100 * least])
    assert bins[0].low <= least < bins[0].high
    assert sum(one.count for one in bins) == 2
