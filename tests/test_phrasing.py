import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.phrasing import fold_text, literal, short, times_text


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.0, 3, "0"),
        (2.5, 3, "2.5"),
        (99.96, 3, "100"),
        (0.0123, 3, "0.0123"),
        (1170.4, 3, "1,170"),
        (99_950.0, 3, "1e5"),
        (65_504.0, 5, "65,504"),
        (1.2e7, 3, "1.2e7"),
        (4.56e-7, 3, "4.56e-7"),
        (4.56e-7, 2, "4.6e-7"),
        (-3.14159, 3, "-3.14"),
        (math.inf, 3, "inf"),
        (math.nan, 3, "nan"),
        (None, 3, "-"),
    ],
)
def test_numbers_are_written_for_people(value, digits, expected):
    assert short(value, digits) == expected


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 9))
def test_a_number_is_what_is_written_to_its_digits(value, digits):
    text = short(value, digits)
    assert "e+" not in text and "e0" not in text and "e-0" not in text
    assert float(text.replace(",", "")) == float(f"{value:.{digits - 1}e}")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_literal_is_python(value):
    assert float(literal(value)) == pytest.approx(value, rel=1e-5)
    assert "," not in literal(value)


@pytest.mark.parametrize(
    ("decades", "expected"),
    [
        (0.4, "2.5-fold"),
        (2.99, "980-fold"),
        (3.0, "1,000-fold (10^3.0)"),
        (4.6, "40,000-fold (10^4.6)"),
        (8.9, "790,000,000-fold (10^8.9)"),
        (12.3, "10^12.3-fold"),
    ],
)
def test_growth_is_a_factor_and_its_power(decades, expected):
    assert fold_text(decades) == expected


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.25, "0.25 times"),
        (2.483, "2.48 times"),
        (999.0, "999 times"),
        (2483.0, "2,500 times (10^3.4)"),
        (1e12, "10^12.0 times"),
        (math.inf, "inf times"),
        (math.nan, "nan times"),
    ],
)
def test_times_have_a_power_where_they_are_many(factor, expected):
    assert times_text(factor) == expected
