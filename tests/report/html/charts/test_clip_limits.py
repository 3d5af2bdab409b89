"""How norms spread and what limits would cut, against the norms themselves."""

import math

import pytest
from hypothesis import given

from gradscope.report.html.charts.clip_limits import limit_chart, norm_chart
from tests.report.html.charts.test_clip_steps import SIZES, section_of
from tests.report.html.figures import assert_valid, shown, trace


def bars(figure):
    """(low, high, count) of each bar on the axis of norms, cut and not cut together."""
    found = {}
    for one in figure["data"]:
        if one.get("xaxis", "x") == "x":
            for low, width, count in zip(one["x"], one["width"], one["y"], strict=True):
                key = (low, low + width)
                found[key] = found.get(key, 0) + count
    return [(low, high, count) for (low, high), count in found.items()]


@given(SIZES)
def test_every_norm_is_counted_in_its_bar(sizes):
    chart = norm_chart(section_of(sizes))
    positive = [size for size in sizes if 0 < size < math.inf]
    if chart is None:
        assert not positive or len(sizes) < 2
        return
    figure = shown(chart)
    for low, high, count in bars(figure):
        slack = 1e-9 * high
        assert count <= sum(low - slack <= size < high + slack for size in positive)
    assert sum(count for _, _, count in bars(figure)) == len(positive)
    beside = {one["name"]: one["y"] for one in figure["data"] if one.get("xaxis", "x") != "x"}
    zeros, broken = sizes.count(0.0), sum(not math.isfinite(size) for size in sizes)
    assert beside == {
        **({"0": [zeros]} if zeros else {}),
        **({"NaN, inf": [broken]} if broken else {}),
    }
    assert_valid(chart)


def test_what_is_cut_is_told_apart():
    figure = shown(norm_chart(section_of([0.5, 0.6, 2.0, 4.0, 8.0])))
    assert sum(trace(figure, "not cut")["y"]) == 2
    assert sum(trace(figure, "cut")["y"]) == 3
    # Plotly would stack small bars of a logarithmic axis on each other.
    assert figure["layout"]["barmode"] == "overlay"
    assert trace(figure, "cut")["base"] == trace(figure, "not cut")["y"]
    lines = [shape["x0"] for shape in figure["layout"]["shapes"]]
    assert 1.0 in lines


def test_a_limit_far_away_is_an_arrow():
    figure = shown(norm_chart(section_of([1.0, 1.1, 1.2], max_norm=1000.0)))
    texts = [note["text"] for note in figure["layout"]["annotations"]]
    assert "limit 1,000 →" in texts
    low, high = figure["layout"]["xaxis"]["range"]
    assert 10**low < 5 if figure["layout"]["xaxis"].get("type") == "log" else high < 5


def test_curves_go_through_the_limits_that_are_told():
    section = section_of([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    chart = limit_chart(section)
    cut, cut_marks, left, left_marks = shown(chart)["data"]
    assert cut_marks["x"] == [row.limit for row in section.sweep]
    assert cut_marks["y"] == [row.share for row in section.sweep]
    assert left_marks["y"] == [row.mean for row in section.sweep]
    along = dict(zip(cut["x"], cut["y"], strict=True))
    for row in section.sweep:
        assert along[row.limit] == row.share
        assert dict(zip(left["x"], left["y"], strict=True))[row.limit] == pytest.approx(row.mean)
    # Where a norm is no longer cut there is a step.
    assert {norm + 1e-6 for norm in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)} <= set(along)
    assert_valid(chart)


def test_zeros_alone_have_no_picture_of_norms():
    section = section_of([0.0, 0.0, 0.0])
    assert norm_chart(section) is None
    assert limit_chart(section) is None
