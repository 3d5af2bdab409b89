"""Curves of several sides, against the losses and norms that were given."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.charts.comparison.curves import compared_curves
from tests.comparison.sides import compared, of_run, of_step
from tests.report.html.figures import assert_valid, labels, shown

LOSSES = st.lists(
    st.one_of(st.sampled_from([math.nan, math.inf]), st.floats(1e-6, 1e6)), min_size=2, max_size=12
)


def run(losses):
    return of_run({"a.weight": [1.0 + at for at in range(len(losses))]}, losses)


def lines(figure, axis):
    return [one for one in figure["data"] if one["yaxis"] == axis and "lines" in one["mode"]]


def axis_of(figure, title):
    return next(
        f"y{name[5:]}"
        for name, axis in figure["layout"].items()
        if name.startswith("yaxis") and axis.get("title", {}).get("text") == title
    )


@given(LOSSES, LOSSES)
def test_every_loss_is_drawn_on_its_line_or_in_the_strip(one, other):
    chart = compared_curves(compared(run(one), run(other)))
    figure = shown(chart)
    assert_valid(chart)
    drawn = lines(figure, axis_of(figure, "loss"))
    for losses, line in zip((one, other), drawn, strict=True):
        values = dict(zip(line["x"], line["y"], strict=True))
        expected = [value if math.isfinite(value) else None for value in losses]
        assert [values[at] for at in range(len(losses))] == expected
    strips = [trace for trace in figure["data"] if trace.get("text")]
    told = sum(len(trace["x"]) for trace in strips)
    assert told == sum(not math.isfinite(value) for value in (*one, *other))


def test_a_diamond_marks_where_a_side_leaves_the_base():
    chart = compared_curves(compared(run([1.0, 1.0, 1.0, 1.0]), run([1.0, 1.001, 1.5, 1.0])))
    figure = shown(chart)
    axis = axis_of(figure, "loss")
    (mark,) = [
        one for one in figure["data"]
        if one["yaxis"] == axis and one["marker"].get("symbol") == "diamond"
    ]  # fmt: skip
    assert (mark["x"], mark["y"]) == ([2], [1.5])
    assert "differs from step 1," in chart.caption


def test_equal_runs_have_no_diamond():
    chart = compared_curves(compared(run([1.0, 2.0]), run([1.0, 2.0])))
    assert not any(one["marker"].get("symbol") == "diamond" for one in shown(chart)["data"])
    assert "equal in all 2 common steps" in chart.caption


def test_all_sides_are_on_one_axis_and_once_in_the_legend():
    chart = compared_curves(compared(*(run([1.0, loss]) for loss in (1.0, 2.0, 3.0))))
    figure = shown(chart)
    assert len(lines(figure, axis_of(figure, "loss"))) == 3
    named = [one["name"][0] for one in figure["data"] if one.get("showlegend")]
    assert named == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("losses", "kind"), [((1.0, 0.5), "linear"), ((1.0, 1e-4), "log"), ((1.0, -5.0), "linear")]
)
def test_an_axis_is_logarithmic_where_that_suits(losses, kind):
    chart = compared_curves(compared(run(losses), run(losses)))
    figure = shown(chart)
    axis = figure["layout"][f"yaxis{axis_of(figure, 'loss')[1:]}"]
    assert axis.get("type") == kind
    # What is below zero cannot be on a logarithmic axis, whoever asks for it.
    assert bool(labels(chart)) == (min(losses) > 0)


def test_single_steps_have_no_curves():
    assert compared_curves(compared(of_step({"a.w": 1.0}), of_step({"a.w": 1.0}))) is None


def test_an_axis_does_not_zoom_into_rounding_errors():
    losses = (8.35020, 8.35023)
    figure = shown(compared_curves(compared(run(losses), run(losses))))
    axis = figure["layout"][f"yaxis{axis_of(figure, 'loss')[1:]}"]
    low, high = axis["autorangeoptions"]["include"]
    assert (low, high) == pytest.approx((8.3502 * 0.995, 8.3502 * 1.005), rel=1e-5)
