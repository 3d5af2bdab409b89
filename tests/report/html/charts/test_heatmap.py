import math
from dataclasses import replace
from struct import pack, unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.analysis.layers import larger
from gradscope.report.html.charts.axes import common_prefix
from gradscope.report.html.charts.colours import colour_ends
from gradscope.report.html.charts.heat import heat_rows, heats
from gradscope.report.html.charts.heatmap import heatmap
from tests.report.conftest import HOSTILE_NAMES
from tests.report.html.charts.loops import NORMS, finding, loop, report_of
from tests.report.html.figures import assert_valid, plain, shown, trace
from tests.report.run.conftest import network
from tests.rules.accumulation.runs import Run


def single(value):
    return unpack("f", pack("f", value))[0]


def state(norm):
    """Where a norm belongs: its logarithm, or the name of the colour that it has instead."""
    if norm is None:
        return "no gradient"
    if not math.isfinite(norm):
        return "gradient norm NaN, inf"
    return single(math.log10(norm)) if norm else "gradient norm 0"


def cells(figure, name="gradient norm"):
    """By parameter and column: what is drawn there."""
    names = (name, f"{name} 0", f"{name} NaN, inf", "no gradient")
    found = {}
    for one in figure["data"]:
        if one["type"] != "heatmap" or one["name"] not in names or not one["visible"]:
            continue
        for row, line in zip(one["meta"]["rows"]["parameter"], one["z"], strict=True):
            for column, value in enumerate(line):
                if value is not None:
                    assert (row, column) not in found
                    found[row, column] = value if one["name"] == name else one["name"]
    return found


STEPS = st.lists(st.tuples(NORMS, NORMS), min_size=1, max_size=10)


@given(STEPS, st.integers(1, 2))
def test_every_norm_is_drawn_where_it_belongs(norms, optimizers):
    recording = loop([1.0] * len(norms), norms, optimizers=optimizers)
    figure = shown(heatmap(report_of(recording)))
    wanted = {}
    for step, of_step in enumerate(norms):
        position = step % optimizers
        # Optimizers that take turns share a column.
        column = (
            step
            if optimizers == 1 or len(norms) == 1
            else step * ((len(norms) + 1) // 2) // len(norms)
        )
        for parameter, norm in enumerate(of_step):
            key = 2 * position + parameter, column
            wanted[key] = larger(wanted[key], norm) if key in wanted else norm
    assert cells(figure) == {key: state(norm) for key, norm in wanted.items()}


@given(STEPS)
def test_plotly_takes_every_figure(norms):
    recording = loop([1.0] * len(norms), norms, updates=[0.5] * len(norms))
    about = finding(step=0, parameters=("model0.weight0",))
    assert_valid(heatmap(report_of(recording, about)))


def test_of_many_steps_the_largest_of_each_column_is_drawn():
    norms = [(1.0 + step % 97, None) for step in range(2000)]
    norms[777] = (math.nan, 0.0)
    report = report_of(loop([1.0] * 2000, norms))
    (finest,) = heats(report, heat_rows(report), 2000)
    heat = finest.grouped(500)
    assert len(heat.columns) == 500
    for column, one in enumerate(heat.columns):
        steps = range(one.first, one.last + 1)
        assert steps == range(4 * column, 4 * column + 4)
        values = [norms[step][0] for step in steps]
        told = heat.cells[0][column]
        if 777 in steps:
            assert math.isnan(told)
            assert one.telling == 777
            assert heat.cells[1][column] == 0.0
        else:
            assert told == max(values)
            assert norms[one.telling][0] == told
            assert heat.cells[1][column] is None
    chart = heatmap(report)
    numbers = trace(shown(chart), "gradient norm")
    assert numbers["meta"]["columns"][0] == "the largest of steps 0 to 3"
    assert (numbers["x"][0], numbers["x"][1], numbers["x"][-1]) == (-0.5, 3.5, 1999.5)
    assert "up to 4 steps" in chart.caption


@given(STEPS, st.integers(1, 12))
def test_groups_of_columns_hold_the_largest_of_their_steps(norms, most):
    report = report_of(loop([1.0] * len(norms), norms))
    rows = heat_rows(report)
    for finest in heats(report, rows):
        grouped = finest.grouped(most)
        assert len(grouped.columns) <= most
        ends = [one.start for one in grouped.columns] + [finest.last_step + 1]
        for column, one in enumerate(grouped.columns):
            steps = range(one.first, one.last + 1)
            assert list(steps) == list(range(ends[column], ends[column + 1]))
            for row, line in enumerate(grouped.cells):
                held = [norms[step][row] for step in steps]
                measured = [value for value in held if value is not None]
                told = line[column]
                if any(map(math.isnan, measured)):
                    assert math.isnan(told)
                else:
                    assert told == max(measured, default=None)


def test_optimizers_one_after_another_have_a_column_a_step():
    run = Run()
    for position in range(4):
        weights = run.model(f"model{position}", 1)
        sgd = run.optimizer(weights, line=3 + position, name=f"opt{position}")
        for _ in range(6):
            run.backward(weights, line=10)
            run.step(sgd, line=11)
    report = report_of(run.recording())
    (heat, *_) = heats(report, heat_rows(report))
    assert len(heat.columns) == 24
    together = report_of(loop([1.0] * 24, optimizers=4))
    assert len(heats(together, heat_rows(together))[0].columns) == 6


def test_updates_and_weights_are_drawn_where_they_were_measured():
    updates = [0.5, None, None, 0.0]
    chart = heatmap(report_of(loop([1.0] * 4, updates=updates)))
    drawn = shown(chart, "update / weight")
    row = 0
    found = {key: value for key, value in cells(drawn, "update / weight").items() if key[0] == row}
    assert found == {(row, 0): single(math.log10(0.05)), (row, 1): "update / weight 0"}
    numbers = trace(drawn, "update / weight")
    assert numbers["meta"]["columns"] == ["step 0", "step 3"]
    assert numbers["x"] == [-0.5, 2.5, 3.5]
    assert cells(shown(chart, "weight norm"), "weight norm")[row, 1] == 1.0
    assert not cells(drawn, "gradient norm")


def test_a_quantity_that_was_never_measured_has_no_button():
    (switch,) = heatmap(report_of(loop([1.0] * 3))).content["switches"]
    assert [choice["label"] for choice in switch["choices"]] == ["gradient norm"]


def test_rows_select_parameters_and_modules_and_columns_steps():
    chart = heatmap(report_of(network(3, lambda step, block: 10.0**-block)))
    meta = trace(shown(chart), "gradient norm")["meta"]
    assert meta["rows"] == {"module": [2, 3, 4], "parameter": [0, 1, 2]}
    assert meta["steps"] == [0, 1, 2]


def many(recording, count):
    """The same with so many parameters in its last module, each as the last one."""
    last = recording.parameters[-1]
    records = tuple(
        replace(last, index=len(recording.parameters) + position, name=f"{last.name}{position}")
        for position in range(count)
    )
    likes = [stat for stat in recording.parameter_stats if stat.parameter == last.index]
    stats = tuple(replace(like, parameter=one.index) for like in likes for one in records)
    return replace(
        recording,
        parameters=recording.parameters + records,
        parameter_stats=tuple(recording.parameter_stats) + stats,
    )


def test_of_more_parameters_than_fit_modules_are_drawn():
    recording = many(network(4, lambda step, block: 3.0 + step), 400)
    report = report_of(recording)
    rows = heat_rows(report)
    assert [row.name for row in rows] == [f"net.blocks.{position}" for position in range(3)]
    assert [len(row.held) for row in rows] == [1, 1, 401]
    (heat, *_) = heats(report, rows)
    assert [heat.cells[2][step] for step in range(4)] == [
        pytest.approx((3.0 + step) * math.sqrt(401)) for step in range(4)
    ]
    assert heat_rows(report, most=2)[0].name == "net.blocks"
    assert "403 in all" in heatmap(report).caption


def test_findings_stand_at_their_steps_and_rows():
    late = finding(step=2, parameters=("model0.weight1",))
    everywhere = finding(step=1, parameters=("model0.weight0", "model0.weight1"), severity="error")
    figure = shown(heatmap(report_of(loop([1.0] * 4), everywhere, late)))
    on_top, on_rows = [one for one in figure["data"] if one["name"] == "findings"]
    assert sorted(on_top["meta"]["links"]["step"]) == [1, 2]
    assert (on_rows["x"], on_rows["y"]) == ([2], ["weight1"])
    assert on_rows["meta"]["links"] == {"step": [2], "module": [0], "parameter": [1]}


def test_names_of_all_kinds_have_rows_of_their_own():
    recording = loop([1.0] * 2)
    names = [*HOSTILE_NAMES, "a" * 3000 + "1", "a" * 3000 + "2", "same", "same"]
    like = recording.parameters[0]
    records = tuple(replace(like, index=position, name=name) for position, name in enumerate(names))
    stat = recording.parameter_stats[0]
    stats = tuple(replace(stat, parameter=one.index) for one in records)
    chart = heatmap(report_of(replace(recording, parameters=records, parameter_stats=stats)))
    labels = trace(shown(chart), "gradient norm")["y"]
    assert len(set(labels)) == len(names)
    assert not any(sign in label for label in labels for sign in ("<", "\n", "\x1b"))
    assert max(map(len, labels)) < 60


def test_what_all_names_begin_with_is_left_out_of_them():
    chart = heatmap(report_of(network(2, lambda step, block: 1.0)))
    assert trace(shown(chart), "gradient norm")["y"] == ["0.weight", "1.weight", "2.weight"]
    assert "Names omit the common prefix net.blocks. " in chart.caption


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["a.b.c", "a.b.d"], "a.b."),
        (["a.b", "a.b.c"], "a."),
        (["a.b"], "a."),
        (["ab.c", "ac.c"], ""),
        (["a", "a.b"], ""),
        (["a.b", "a.b"], "a."),
    ],
)
def test_a_prefix_ends_with_a_module(names, prefix):
    assert common_prefix(names) == prefix


@pytest.mark.parametrize(
    ("norms", "ends"),
    [
        ([1e-3, 1.0, 100.0], (-3, 2)),
        ([1.0], (-0.5, 0.5)),
        ([], (0, 1)),
        ([0.0, math.nan, None], (0, 1)),
        # An explosion leaves what was before it its colours.
        ([1.0] * 9 + [1e30], (0, 14)),
        ([1e-30] + [1.0] * 9, (-14, 0)),
        ([1e-30] + [1.0] * 9 + [1e30], (-7, 7)),
    ],
)
def test_colours_reach_over_the_numbers(norms, ends):
    assert colour_ends(norms) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("norms", "ends"),
    [
        ([1e-3, 1.0, 100.0], []),
        ([1.0] * 9 + [1e30], ["≥ 1e14"]),
        ([1e-30] + [1.0] * 9 + [1e30], ["≤ 1e-7", "≥ 1e7"]),
    ],
)
def test_colours_that_stand_for_all_beyond_say_so(norms, ends):
    figure = shown(heatmap(report_of(loop([1.0] * len(norms), [(norm, norm) for norm in norms]))))
    texts = trace(figure, "gradient norm")["colorbar"]["ticktext"]
    assert [text for text in texts if text[0] in "≤≥"] == ends


def test_without_parameters_there_is_no_picture():
    recording = replace(loop([1.0]), parameters=(), parameter_stats=())
    assert heatmap(report_of(recording)) is None


def levels(norms):
    """The finer columns of gradient norms that a page holds, decoded."""
    found = plain(heatmap(report_of(loop([1.0] * len(norms), norms))).content["finer"])
    for level in found.values():
        level["z"] = [
            list(map(number_in, [row] * len(row["codes"]), row["codes"])) for row in level["rows"]
        ]
        level["states"] = [
            [code if code is not None and code < 3 else None for code in row["codes"]]
            for row in level["rows"]
        ]
    return found


def test_finer_columns_are_left_out_where_the_first_ones_take_the_room(monkeypatch):
    norms = [(float(step), 1.0) for step in range(600)]
    shown, finer = 2 * 300 * 16 / 3, 2 * 600 * 8 / 3
    monkeypatch.setattr("gradscope.report.html.charts.long_runs._LEVELS_ROOM", shown + finer)
    assert list(levels(norms)) == ["gradient"]
    monkeypatch.setattr("gradscope.report.html.charts.long_runs._LEVELS_ROOM", shown + finer - 1)
    assert levels(norms) == {}


def number_in(row, code):
    return None if code is None or code < 3 else row["low"] + (code - 3) * row["size"]


def test_of_many_steps_the_page_holds_finer_columns():
    norms = [(1.0 + step % 97, 0.0 if step % 2 else None) for step in range(1300)]
    norms[777] = (math.nan, 2.0)
    level = levels(norms)["gradient"]
    assert level["first"] == level["last"] == level["steps"] == list(range(1300))
    assert level["edges"] == [step - 0.5 for step in range(1301)]
    for row in range(2):
        for step, of_step in enumerate(norms):
            told = state(of_step[row])
            number = told if isinstance(told, float) else None
            found = level["z"][row][step]
            assert found is number or found == pytest.approx(number, abs=1e-4)
            names = ("gradient norm 0", "gradient norm NaN, inf", "no gradient")
            expected = names.index(told) if told in names else None
            assert level["states"][row][step] == expected


def test_a_heatmap_with_a_column_for_each_step_has_no_finer_columns():
    assert levels([(1.0, 2.0)] * 500) == {}


def test_finer_columns_stay_within_their_room(monkeypatch):
    monkeypatch.setattr("gradscope.report.html.charts.long_runs._CELLS", 2 * 1200)
    level = levels([(float(step), 1.0) for step in range(3000)])["gradient"]
    assert [len(row) for row in level["z"]] == [1200, 1200]
    assert (level["first"][:3], level["last"][:3]) == ([0, 3, 5], [2, 4, 7])
    assert level["z"][0][1] == pytest.approx(math.log10(4.0), abs=1e-4)
    assert level["steps"][1] == 4
