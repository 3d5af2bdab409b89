"""Norms before and after a clip as they are drawn, against the clip's own points."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.series import ClipPoint
from gradscope.report.html.charts.clip_steps import drawn, step_chart, stretches
from tests.report.html.figures import assert_valid, shown, trace
from tests.rules.clipping.clipped_run import trained

SIZES = st.lists(
    st.one_of(st.sampled_from([0.0, math.nan, math.inf]), st.floats(1e-6, 1e6)),
    min_size=1,
    max_size=30,
)


def section_of(sizes, max_norm=1.0, **clip):
    """The section of a run whose only parameter has gradients of some norms."""
    run, weights, optimizer = trained(parameters=1)
    for size in sizes:
        run.zero(optimizer)
        run.backward(weights, size=size)
        run.clip(weights, max_norm, **clip)
        run.step(optimizer)
    (section,) = Clipping.of(run.recording()).sections
    return section


def finite_points(one):
    return {step: norm for step, norm in zip(one["x"], one["y"], strict=True) if norm is not None}


@given(SIZES)
def test_every_norm_is_drawn_once_and_where_it_belongs(sizes):
    chart = step_chart(section_of(sizes))
    figure = shown(chart)
    before = finite_points(trace(figure, "before"))
    assert before == {at: size for at, size in enumerate(sizes) if 0 < size < math.inf}
    for name, is_kind in (
        ("NaN, inf", lambda size: not math.isfinite(size)),
        ("0", lambda size: size == 0),
    ):
        strips = [one for one in figure["data"] if one["name"] == name]
        positions = [step for one in strips for step in one["x"]]
        assert positions == [at for at, size in enumerate(sizes) if is_kind(size)]
        # A strip is no logarithmic axis.
        for one in strips:
            assert figure["layout"][f"yaxis{one['yaxis'][1:]}"].get("type") != "log"
    assert_valid(chart)


def test_what_is_left_of_each_norm_is_drawn():
    section = section_of([0.5, 2.0, 10.0])
    figure = shown(step_chart(section))
    after = finite_points(trace(figure, "after"))
    assert after == pytest.approx({0: 0.5, 1: 1.0, 2: 1.0}, rel=1e-5)
    kept = trace(figure, "coefficient")
    assert kept["y"] == [point.coefficient for point in section.points]
    assert trace(figure, "limit 1")["y"] == [1.0, 1.0]
    assert trace(figure, "cut")["x"] == [1, 2]
    assert figure["layout"]["meta"]["stepAxes"] == ["x"]
    assert trace(figure, "before")["meta"]["links"]["step"] == [0, 1, 2]


def test_a_clip_that_cuts_nothing_has_one_panel():
    chart = step_chart(section_of([0.5, 0.6]))
    assert [one["name"] for one in shown(chart)["data"]] == ["before", "limit 1"]
    assert "Nothing is clipped." in chart.caption


def test_a_limit_that_changes_is_no_line():
    section = replace(section_of([2.0, 3.0]), limits=(0.5, 1.0))
    names = [one["name"] for one in shown(step_chart(section))["data"]]
    assert not any(name.startswith("limit") for name in names)


def test_cosine_is_drawn_where_the_clip_may_turn_gradients():
    measured = {"norm": 4.0, "norm_after": 1.0, "cosine": 0.25}
    section = section_of([2.0, 3.0], by_value=True, **measured)
    figure = shown(step_chart(section))
    assert trace(figure, "cosine")["y"] == [0.25, 0.25]
    assert trace(figure, "coefficient")["y"] == [0.25, 0.25]
    assert not any(one["name"].startswith("limit") for one in figure["data"])


def points(norms):
    return tuple(
        ClipPoint(step=3 * at, norm=norm, coefficient=min(1.0, 1 / norm if norm else 1.0),
                  cosine=None)
        for at, norm in enumerate(norms)
    )  # fmt: skip


@given(st.data())
def test_of_many_points_none_that_tells_is_left_out(data):
    norms = [1 + at % 7 / 10 for at in range(500)]
    for position in data.draw(st.lists(st.integers(0, 499), max_size=6)):
        norms[position] = data.draw(st.sampled_from([math.nan, math.inf, 0.0, 1e9, 1e-9]))
    every = points(norms)
    kept = drawn(every, most=100)
    assert len(kept) < len(every) and kept[0] == every[0] and kept[-1] == every[-1]
    finite = [point.norm for point in every if math.isfinite(point.norm)]
    assert {min(finite), max(finite)} <= {point.norm for point in kept}
    for is_kind in (math.isnan, math.isinf):
        assert any(map(is_kind, norms)) == any(is_kind(point.norm) for point in kept)
    assert [point.step for point in kept] == sorted({point.step for point in kept})


def test_few_points_are_all_drawn():
    assert drawn(points([1.0] * 50)) == list(points([1.0] * 50))


def test_stretches_hold_every_finite_step_once():
    norms = [2.0 if at % 4 == 0 else 0.5 for at in range(1000)] + [math.nan] * 9
    found = stretches(points(norms))
    assert sum(one.count for one in found) == 1000
    assert sum(one.cut for one in found) == 250
    assert all(one.first <= one.last for one in found)


def test_a_long_run_says_how_much_of_it_is_drawn():
    section = replace(section_of([2.0]), points=points([1 + at % 9 for at in range(20_000)]))
    chart = step_chart(section)
    assert "of 20,000 steps are drawn" in chart.caption
    assert max(len(one["x"]) for one in shown(chart)["data"]) <= 3000
