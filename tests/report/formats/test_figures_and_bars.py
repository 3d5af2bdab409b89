"""Numbers and bars against what they stand for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.folding import Span
from gradscope.report.number_format import figure, percent, short_count, span_figure
from gradscope.report.page import ASCII, UNICODE
from gradscope.report.strips import LogScale, axis, bar, sparkline


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (0.0, "0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (1200.4, "1,200"),
        (12345.0, "12,300"),
        (123456.0, "1.23e5"),
        (0.12, "0.120"),
        (0.000123, "0.000123"),
        (0.0000123, "1.23e-5"),
        (1e-30, "1.00e-30"),
    ],
)
def test_figure(value, text):
    assert figure(value) == text


@given(st.floats(min_value=1e-40, max_value=1e38))
def test_figure_is_within_half_of_the_third_digit(value):
    assert float(figure(value).replace(",", "")) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1e-9, "0.01 %"),
        (0.004, "0.4 %"),
        (0.07, "7 %"),
        (0.994, "99.4 %"),
        (0.99999, "99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_only_none_and_all_are_written_as_0_and_100_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (28272, "28.3k"), (999_950, "1.00M")],
)
def test_short_count(count, text):
    assert short_count(count) == text


def test_range_of_one_number_is_that_number():
    assert span_figure(Span(low=1.0, high=1.001)) == "1.00"
    assert span_figure(Span(low=1.0, high=2.0), ASCII) == "1.00..2.00"


def test_bar_is_as_long_as_the_logarithm():
    scale = LogScale(lowest=-2, highest=2, width=8)
    assert bar(Span(low=1.0, high=1.0), scale, UNICODE).plain.rstrip() == "████"
    assert bar(Span(low=100.0, high=100.0), scale, UNICODE).plain == "█" * 8
    assert bar(Span(low=1.0, high=100.0), scale, UNICODE).plain == "████▒▒▒▒"
    assert bar(Span(low=0.01, high=0.01), scale, UNICODE).plain.rstrip() == "▏"


@given(st.floats().map(abs), st.floats().map(abs))
def test_bar_fills_its_column_whatever_the_numbers(one, other):
    span = Span(low=min(one, other), high=max(one, other))
    for signs in (UNICODE, ASCII):
        scale = LogScale.over([span, Span(low=1e-3, high=10.0)], 12)
        assert len(bar(span, scale, signs)) == 12


def test_scale_leaves_out_zeros_and_broken_numbers():
    spans = [Span(low=0.0, high=0.5), Span(low=math.nan, high=math.nan), None]
    scale = LogScale.over([*spans, Span(low=20.0, high=math.inf)], 10)
    assert (scale.lowest, scale.highest) == (-1, 2)
    assert LogScale.over(spans[1:], 10) is None


def test_lowest_number_does_not_lie_at_the_end_of_the_scale():
    assert LogScale.over([Span(low=1.0, high=10.0)], 10) == LogScale(lowest=-1, highest=1, width=10)


def test_axis_marks_each_decade():
    line, labels = axis(LogScale(lowest=-2, highest=1, width=28), UNICODE)
    assert line.plain == "└────────┴────────┴────────┘"
    assert labels.plain.split() == ["0.01", "0.1", "1", "10"]


def test_sparkline_runs_from_lowest_to_highest():
    assert sparkline([0.0, 1.0, 0.5], UNICODE)[:2] == "▁█"
    assert len(set(sparkline([2.0, 2.0], UNICODE))) == 1


def test_small_changes_stay_flat_in_a_sparkline():
    assert len(set(sparkline([0.0, 0.02, 0.01], UNICODE, least=1.0))) == 1
