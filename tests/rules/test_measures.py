import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.rules.measurement import Measure

HIGHER = Measure(number="n")
LOWER = Measure(number="n", worse="lower")
DECADES = Measure(number="n", is_logarithm=True)


@pytest.mark.parametrize(
    ("measure", "known", "edge", "beyond"),
    [
        (HIGHER, 3.0, 6.0, 6.001),
        (HIGHER, -0.4, -0.2, -0.19),
        (HIGHER, 0.0, 0.0, 1e-9),
        (LOWER, 3.0, 1.5, 1.499),
        (LOWER, -0.4, -0.8, -0.81),
        (DECADES, 3.0, 3.0 + math.log10(2), 3.302),
        (DECADES, 0.1, 0.4, 0.402),
    ],
)
def test_worse_begins_beyond_the_factor(measure, known, edge, beyond):
    assert not measure.is_worse(edge, known, 2.0)
    assert measure.is_worse(beyond, known, 2.0)


@pytest.mark.parametrize("measure", [HIGHER, LOWER, DECADES])
def test_nan_is_worse_than_numbers_and_nothing_worse_than_nan(measure):
    assert measure.is_worse(math.nan, 1.0, 2.0)
    assert measure.is_worse(math.nan, math.inf, 2.0)
    assert not measure.is_worse(math.nan, math.nan, 2.0)
    assert not measure.is_worse(math.inf, math.nan, 2.0)


def test_infinity_is_worse_than_numbers_and_not_than_itself():
    assert HIGHER.is_worse(math.inf, 1e300, 2.0)
    assert not HIGHER.is_worse(math.inf, math.inf, 2.0)
    assert LOWER.is_worse(-math.inf, -1e300, 2.0)


@given(
    st.sampled_from([HIGHER, LOWER, DECADES]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1, 1e6),
)
def test_the_same_is_never_worse(measure, value, factor):
    assert not measure.is_worse(value, value, factor)
