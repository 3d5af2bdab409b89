import math
import statistics
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.clipping.limits import Distribution, LimitCurve, histogram, quantile, spaced
from gradscope.analysis.clipping.sections import Contributions
from tests.rules.clipping.clipped_run import ClippedRun

positive = st.floats(min_value=1e-300, max_value=1e300)
some = st.lists(st.one_of(positive, st.just(0.0)), min_size=1, max_size=50)


NORMS = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=30)
LIMITS = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=10)


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


@given(NORMS, LIMITS)
def test_shares_and_means_are_those_of_each_norm_clipped(norms, limits):
    curve = LimitCurve.of(norms, limits)
    assert curve.limits == tuple(sorted(limits))
    for limit, share, mean in zip(curve.limits, curve.shares, curve.means, strict=True):
        factors = [min(1.0, limit / (norm + 1e-6)) for norm in norms]
        assert share == sum(factor < 1 for factor in factors) / len(norms)
        assert math.isclose(mean, fmean(factors), rel_tol=1e-9)


def test_limits_are_equally_far_from_each_other_in_decades():
    assert [round(limit, 9) for limit in spaced(0.01, 100, 5)] == [0.01, 0.1, 1, 10, 100]


def recording(*names):
    run = ClippedRun()
    run.model("model", len(names))
    found = run.recording()
    records = tuple(
        replace(record, name=name) for record, name in zip(found.parameters, names, strict=True)
    )
    return replace(found, parameters=records)


NAMES = ("model.embedding.weight", "model.blocks.0.a.weight", "model.blocks.1.a.weight")


def test_shares_are_of_the_squared_norm():
    found = Contributions.of(recording(*NAMES), [{0: 3.0, 1: 4.0}, {0: 1.0, 1: 0.0}], ())
    first, second = found.parameters
    assert (first.name, first.largest) == ("model.embedding.weight", 1.0)
    assert first.share == pytest.approx(0.68)
    assert (second.share, second.largest, second.leads) == (pytest.approx(0.32), 0.64, 0.5)
    assert first.before == 2.0


def test_shares_of_other_norms_are_of_their_power():
    (first, second) = Contributions.of(recording(*NAMES), [{0: 1.0, 1: 3.0}], (), 1.0).parameters
    assert (first.share, second.share) == (0.75, 0.25)
    (first, second) = Contributions.of(
        recording(*NAMES), [{0: 1.0, 1: 3.0}], (), math.inf
    ).parameters
    assert (first.share, second.share) == (1.0, 0.0)


def test_modules_are_the_parts_of_the_model_each_of_a_list_for_itself():
    found = Contributions.of(recording(*NAMES), [{0: 1.0, 1: 1.0, 2: 1.0}], ())
    assert {one.name for one in found.modules} == {
        "model.embedding", "model.blocks.0", "model.blocks.1",
    }  # fmt: skip


def test_one_that_makes_more_than_half_leads():
    assert Contributions.of(recording(*NAMES), [{0: 10.0, 1: 1.0}], ()).leader.share > 0.9
    assert Contributions.of(recording(*NAMES), [{0: 1.0, 1: 1.0, 2: 1.0}], ()).leader is None
    assert Contributions.of(recording("model.weight"), [{0: 1.0}], ()).leader is None


@pytest.mark.parametrize("step", [{0: math.nan, 1: 1.0}, {0: math.inf, 1: 1.0}, {0: 0.0, 1: 0.0}])
def test_steps_without_a_finite_norm_have_no_shares(step):
    found = Contributions.of(recording(*NAMES), [step, {0: 1.0, 1: 0.0}], ())
    assert found.parameters[0].share == 1.0
    assert not Contributions.of(recording(*NAMES), [step], ()).parameters


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_shares_of_norms_whose_squares_leave_the_range(size):
    first, second = Contributions.of(recording(*NAMES), [{0: 3 * size, 1: 4 * size}], ()).parameters
    assert (first.share, second.share) == pytest.approx((0.64, 0.36))
