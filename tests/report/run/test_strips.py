"""Numbers as rows of characters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.page import ASCII, UNICODE
from gradscope.report.strips import Scale, strip

LEVELS = UNICODE.levels
ANY = st.none() | st.floats()


def loss(*cells, signs=UNICODE):
    return strip(cells, Scale.linear(cells), signs)


def norms(*cells, signs=UNICODE):
    return strip(cells, Scale.decades([cells]), signs)


def test_a_loss_is_drawn_from_lowest_to_highest():
    assert loss(0.0, 7.0, 3.0) == "▁█▄"


def test_a_loss_that_hardly_moves_is_flat():
    drawn = loss(2.30, 2.31, 2.30, 2.305)
    assert len({LEVELS.index(sign) for sign in drawn}) <= 3
    assert loss(2.3, 2.3) == LEVELS[4] * 2


def test_a_loss_may_be_negative():
    assert loss(-3.0, -1.0) == "▁█"


def test_a_loss_of_many_decades_is_drawn_on_a_logarithmic_scale():
    assert loss(1e6, 1e3, 1.0)[1] not in "▁█"


def test_norms_are_drawn_on_a_logarithmic_scale():
    drawn = norms(1.0, 10.0, 100.0, 1e7)
    assert [LEVELS.index(sign) for sign in drawn] == [0, 1, 2, 7]


def test_norms_within_a_decade_stay_in_the_middle():
    assert set(norms(1.0, 1.1, 0.9)) <= set("▄▅")


def test_zero_missing_and_broken_norms_are_told_apart():
    assert norms(0.0, None, math.nan, math.inf, 1.0, 100.0) == "0 !!▁█"


def test_a_loss_of_zero_is_a_number():
    assert loss(0.0, 1.0) == "▁█"


@pytest.mark.parametrize("make", [loss, norms])
def test_nothing_measured(make):
    assert make(None, None) == "  "
    assert make() == ""
    assert make(math.nan) == "!"


@given(st.lists(ANY, max_size=30))
def test_every_number_has_a_character(cells):
    for make in (loss, norms):
        for signs in (UNICODE, ASCII):
            drawn = make(*cells, signs=signs)
            assert len(drawn) == len(cells)
            for sign, value in zip(drawn, cells, strict=True):
                assert (sign == " ") == (value is None)
                assert (sign == "!") == (value is not None and not math.isfinite(value))


@given(st.lists(st.floats(1e-300, 1e300), min_size=2, max_size=20))
def test_larger_numbers_are_never_lower(cells):
    for make in (loss, norms):
        drawn = [LEVELS.index(sign) for sign in make(*cells)]
        assert [level for _, level in sorted(zip(cells, drawn, strict=True))] == sorted(drawn)
