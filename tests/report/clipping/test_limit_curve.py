"""The curve of limits against torch's own arithmetic, norm by norm."""

import math
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.clipping.limits import LimitCurve, spaced

NORMS = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=30)
LIMITS = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=10)


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
