"""What is drawn of parameters that are compared, against the norms that were given."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.charts.comparison.marks import (
    drawn,
    drawn_text,
    pair_of,
    pair_rows,
    pair_table,
    sides_table,
)
from gradscope.report.html.charts.comparison.ratios import compared_ratios, compared_spread
from gradscope.report.html.charts.comparison.sides import compared_norms, kind_of
from tests.comparison.sides import GivenGradient, compared, of_step
from tests.report.html.figures import assert_valid, plain, shown

SPECIAL = {"none": None, "0": 0.0, "NaN": math.nan, "inf": math.inf}
NORMS = st.one_of(st.sampled_from([None, 0.0, math.nan, math.inf]), st.floats(1e-20, 1e20))
MODELS = st.lists(st.tuples(NORMS, NORMS), min_size=1, max_size=8)


def given_norm(norm):
    if norm is None:
        return GivenGradient(norm=None, reach="none")
    if norm == 0:
        return GivenGradient(norm=0.0, reach="zero")
    return GivenGradient(norm=norm, nonfinite=0 if math.isfinite(norm) else 2)


def pair_with(norms):
    """The comparison of two models with such norms."""
    sides = [
        of_step({f"blocks.{at}.weight": given_norm(pair[turn]) for at, pair in enumerate(norms)})
        for turn in (0, 1)
    ]
    return compared(*sides)


def charts(pair):
    rows = pair_rows(pair)
    return (
        compared_norms(rows, *pair.sides, 0.1, is_wide=True),
        compared_ratios(rows, pair.sides, 0.1, 0.9),
        compared_spread(rows, pair.sides, 0.1),
    )


def placed(figure, pair):
    """(x, y) of each parameter by its place, with the names of strips for what lies in one."""
    found = {}
    by_rank = {row.rank: row.position for row in pair_rows(pair)}
    for trace in figure["data"]:
        names = [strip_of(figure, trace[f"{letter}axis"]) for letter in "xy"]
        links = trace["meta"]["links"]["parameter"]
        for rank, x, y in zip(links, trace["x"], trace["y"], strict=True):
            position = by_rank[rank]
            assert position not in found
            found[position] = tuple(
                value if name is None else name for name, value in zip(names, (x, y), strict=True)
            )
    return found


def strip_of(figure, axis):
    """The name of a strip; None for an axis of numbers."""
    return figure["layout"][f"{axis[0]}axis{axis[1:]}"].get("ticktext", [None])[0]


def kind(norm):
    if norm is None:
        return "none"
    return "0" if norm == 0 else norm if math.isfinite(norm) else "NaN, inf"


@given(MODELS)
def test_every_norm_lies_where_it_belongs(norms):
    pair = pair_with(norms)
    chart = charts(pair)[0]
    expected = {
        at: (kind(one), kind(other))
        for at, (one, other) in enumerate(norms)
        if one is not None or other is not None
    }
    if chart is None:
        assert not expected
        return
    assert placed(shown(chart), pair) == expected
    assert_valid(chart)


@given(MODELS)
def test_every_ratio_is_drawn_once_and_where_it_belongs(norms):
    pair = pair_with(norms)
    chart = charts(pair)[1]
    ratios = {row.position: row.pair.ratio for row in pair_rows(pair) if row.pair.ratio is not None}
    found = {}
    if chart is not None:
        figure = shown(chart)
        assert_valid(chart)
        axes = figure["layout"]
        for trace in figure["data"]:
            axis = axes[f"yaxis{trace['yaxis'][1:]}"]
            strip = axis.get("ticktext", [None])[0]
            if strip == "changed" or axis.get("title", {}).get("text") == "weights":
                continue
            for position, y in zip(trace["x"], trace["y"], strict=True):
                found[position] = y if strip is None else strip
    assert found == {position: kind(ratio) for position, ratio in ratios.items()}


@given(MODELS)
def test_bars_count_every_ratio_once(norms):
    pair = pair_with(norms)
    chart = charts(pair)[2]
    ratios = [row.pair.ratio for row in pair_rows(pair)]
    known = [ratio for ratio in ratios if ratio is not None and 0 < ratio < math.inf]
    if chart is None:
        assert len(set(known)) < 2
        return
    data = shown(chart)["data"]
    assert sum(sum(trace["y"]) for trace in data) == len(known)
    below = [0] * len(data[0]["x"])
    for trace in data:
        assert trace["base"] == below
        below = [one + count for one, count in zip(below, trace["y"], strict=True)]
    assert_valid(chart)


def test_marks_select_the_module_of_the_base():
    pair = pair_with([(1.0, 2.0), (1.0, None), (None, 3.0)])
    modules = pair.sides[0].report.modules
    rows = plain(pair_table(pair_rows(pair), pair.sides).content)["columns"][0]["values"]
    for chart in charts(pair)[:2]:
        for trace in shown(chart)["data"]:
            links = trace["meta"]["links"]
            for module, rank in zip(links["module"], links["parameter"], strict=True):
                assert rows[rank] == f"{modules[module].path}.weight"


def test_new_and_lost_parameters_are_marked():
    pair = compared(
        of_step({"a.weight": 1.0, "b.weight": 2.0}), of_step({"a.weight": 1.0, "c.w": 3.0})
    )
    rows = pair_rows(pair)
    assert {row.name: row.pair.change for row in rows} == {
        "a.weight": "equal", "b.weight": "missing", "c.w": "new",
    }  # fmt: skip
    figure = shown(compared_norms(rows, *pair.sides, 0.1, is_wide=True))
    assert placed(figure, pair) == {0: (1.0, 1.0), 1: (2.0, "none"), 2: ("none", 3.0)}
    assert [row.module is None for row in rows] == [False, False, True]
    assert kind_of(None) == "none"


def test_an_axis_never_lies_within_the_tolerance():
    pair = pair_with([(1.0, 1.0001), (1.0, 0.9999), (1.0, 1.0)])
    axes = [
        shown(charts(pair)[1])["layout"]["yaxis"],
        shown(charts(pair)[2])["layout"]["xaxis"],
    ]
    for axis in axes:
        low, high = axis["range"]
        assert low < math.log10(1 / 1.1) < math.log10(1.1) < high


def test_the_band_is_shown_where_norms_leave_it():
    low, high = shown(charts(pair_with([(1.0, 3.0), (1.0, 1.0)]))[1])["layout"]["yaxis"]["range"]
    assert low < math.log10(1 / 1.1) and high > math.log10(3)


def columns(chart):
    return {one["title"]: one["values"] for one in plain(chart.content)["columns"]}


def test_the_table_has_every_parameter_the_worst_first():
    norms = [(1.0, 1.0), (1.0, None), (2.0, 2.1), (3.0, 30.0)]
    pair = pair_with(norms)
    rows = pair_rows(pair)
    chart = pair_table(rows, pair.sides)
    found = columns(chart)
    assert found["parameter"] == [f"blocks.{at}.weight" for at in (1, 3, 2, 0)]
    assert found["norm A"] == [1.0, 3.0, 2.0, 1.0]
    assert found["norm B"] == [None, 30.0, 2.1, 1.0]
    assert found["ratio"] == [None, 10.0, pytest.approx(1.05), 1.0]
    assert found["state"][0] == "gradient → none"
    assert plain(chart.content)["links"]["parameter"] == [0, 1, 2, 3]


def test_the_table_of_all_sides_has_a_norm_of_each():
    sides = [of_step({"a.weight": norm, "b.weight": 1.0}) for norm in (1.0, 2.0, 50.0)]
    found = columns(sides_table(compared(*sides)))
    assert found["parameter"] == ["a.weight", "b.weight"]
    assert [found[f"norm {letter}"][0] for letter in "ABC"] == [1.0, 2.0, 50.0]


def test_of_many_parameters_those_that_changed_are_all_drawn():
    pair = pair_with([(1.0, 1.0 if at % 100 else 9.0) for at in range(600)])
    rows = pair_rows(pair)
    kept = drawn(rows, most=100)
    changed = [row.position for row in rows if row.pair.change == "norm"]
    assert len(changed) == 6 and set(changed) <= {row.position for row in kept}
    assert len(kept) <= 106
    assert drawn_text(rows) == ""


def test_a_pair_is_the_base_and_one_side():
    sides = [of_step({"a.weight": 1.0, **extra}, loss=loss) for extra, loss in (
        ({}, 1.0), ({"only_b.weight": 1.0}, 2.0), ({"only_c.weight": 1.0}, 3.0),
    )]  # fmt: skip
    pair = pair_of(compared(*sides), 2)
    assert [side.letter for side in pair.sides] == ["A", "C"]
    assert [one.name for one in pair.parameters] == ["a.weight", "only_c.weight"]
    assert all(one.side == 1 for one in pair.verdict.regressions)
    assert len(pair.verdict.regressions) == 1


@given(MODELS)
def test_every_axis_of_ratios_has_something_on_it(norms):
    chart = charts(pair_with(norms))[1]
    if chart is None:
        return
    figure = plain(chart.content["figure"])
    drawn_on = {trace["yaxis"] for trace in figure["data"] if len(trace["x"])}
    axes = {name.replace("axis", "") for name in figure["layout"] if name.startswith("yaxis")}
    assert axes == drawn_on
