import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.report.html.charts.colours import SEQUENTIAL, ColourScale
from gradscope.report.html.charts.module_map import module_map
from gradscope.report.html.columns import module_columns
from gradscope.session.report import Report
from tests.report.conftest import build, build_hostile, module
from tests.report.html.charts.conftest import REPORTS
from tests.report.html.figures import assert_valid, labels, shown

POSITIVE = st.floats(1e-300, 1e300)


def tree_of(report, *chosen):
    return shown(module_map(report), *chosen)["data"][0]


def cells(tree):
    """By module: the cell's place."""
    return {module: at for at, module in enumerate(tree["meta"]["links"]["module"])}


@given(REPORTS)
def test_every_module_has_a_cell_in_its_parents(report):
    tree = tree_of(report)
    at = cells(tree)
    assert sorted(at) == [row.index for row in report.modules]
    for row in report.modules:
        parent = tree["parents"][at[row.index]]
        assert parent == ("" if row.parent is None else tree["ids"][at[row.parent]])


@given(REPORTS)
def test_colours_tell_numbers_from_zero_none_and_broken(report):
    tree = tree_of(report)
    at = cells(tree)
    for row in report.modules:
        colour, shape = (tree["marker"]["colors"], tree["marker"]["pattern"]["shape"])
        found = colour[at[row.index]], shape[at[row.index]]
        norm = row.grad_norm
        if norm is None:
            states = {"act": ("@panel", ""), "head.scale": ("@frozen", ".")}
            assert found == states.get(row.path, ("@none", "\\"))
        elif not math.isfinite(norm):
            assert found == ("@broken", "x")
        elif norm == 0:
            assert found == ("@zero", "/")
        else:
            assert found[0].startswith("#")
            assert found[1] == ""


def told(tree, title):
    """By module: what is told of it."""
    (column,) = (one for one in tree["meta"]["told"] if one["title"] == title)
    return {module: column["values"][at] for module, at in cells(tree).items()}


@given(REPORTS)
def test_what_is_told_are_the_reports_numbers(report):
    found = told(tree_of(report), "gain of backward")
    for row in report.modules:
        gains = [call.gain for call in row.calls]
        value = gains[0] if gains else None
        assert str(found[row.index]) == "nan" if value != value else found[row.index] == value


def test_what_the_tab_knows_of_modules_is_not_told_twice(report):
    columns = {one["title"]: one.get("of") for one in tree_of(report)["meta"]["told"]}
    assert columns["module"] == "path"
    assert columns["gradient norm"] == "norm"
    assert {of for of in columns.values() if of} <= set(module_columns(report))


def test_numbers_of_an_element_and_of_a_weight_are_told(report):
    tree = tree_of(report)
    first = report.modules[1]
    assert told(tree, "per element")[1] == math.hypot(3, 4) / math.sqrt(8)
    assert told(tree, "÷ weight")[1] == first.grad_norm / first.weight_norm
    assert told(tree, "at the output")[1] == 4
    # 4 at the input of the ReLU, 8 at its output.
    assert told(tree, "gain of backward")[2] == 0.5


def test_a_cell_is_lettered_with_what_its_colour_stands_for(report):
    chart = module_map(report)
    for label in labels(chart)[:5]:
        tree = tree_of(report, label)
        assert tree["meta"]["written"] == label
        assert label in [one["title"] for one in tree["meta"]["told"]]


@settings(max_examples=8, deadline=None)
@given(REPORTS)
def test_plotly_takes_the_figure(report):
    chart = module_map(report)
    assert {"icicle", "treemap", "√ parameters", "equal"} <= set(labels(chart))
    assert_valid(chart)


def test_several_models_lie_in_one_cell():
    recording = build()
    count = len(recording.modules)
    critic = module(count, "critic", "Critic", parent=None)
    inner = module(count + 1, "critic.out", "Linear", parent=count)
    loss = module(count + 2, "loss_fn", "MSELoss", parent=None)
    modules = (*recording.modules, critic, inner, loss)
    report = Report.from_recording(replace(recording, modules=modules))
    tree = tree_of(report)
    assert tree["labels"][0] == "all models"
    tops = [at for at, parent in enumerate(tree["parents"]) if parent == tree["ids"][0]]
    assert [tree["labels"][at] for at in tops] == ["Net", "critic"]


def test_areas_are_own_elements_and_no_module_is_lost(report):
    tree = tree_of(report, "parameters")
    at = cells(tree)
    assert tree["values"][at[1]] == 8
    assert tree["values"][at[0]] == 0
    assert 0 < tree["values"][at[2]] < 1


def test_names_that_try_to_break_out_are_escaped():
    tree = tree_of(Report.from_recording(build_hostile()))
    names = " ".join(tree["labels"])
    assert "<script" not in names
    assert "&lt;script&gt;" in names
    assert "\n" not in names


@given(st.lists(POSITIVE, min_size=1), st.data())
def test_a_scale_ascends_with_its_numbers(values, data):
    scale = ColourScale.over(values)
    assert scale.high - scale.low >= 1 - 1e-9
    one, other = sorted(data.draw(st.tuples(st.sampled_from(values), st.sampled_from(values))))
    shares = [(math.log10(value) - scale.low) / (scale.high - scale.low) for value in (one, other)]
    assert shares[0] + 1e-9 >= 0
    assert shares[1] <= 1 + 1e-9
    assert (scale.colour(one) == scale.colour(other)) or shares[0] < shares[1]


def test_a_scale_has_its_ends_and_its_middle():
    scale = ColourScale.over([1e-8, 1.0, None, 0.0, math.nan, math.inf])
    assert (scale.low, scale.high) == (-8.0, 0.0)
    assert scale.colour(1e-8) == SEQUENTIAL[0]
    assert scale.colour(1.0) == SEQUENTIAL[-1]
    assert scale.colour(1e-12) == SEQUENTIAL[0]
    around = ColourScale.around_one([1e-3, 10.0])
    assert (around.low, around.high) == (-3.0, 3.0)
    assert around.colour(1.0) == "#f5f5f5"


def test_a_model_of_one_module_needs_no_map():
    recording = build()
    lone = replace(recording, modules=recording.modules[:1], parameters=(), calls=(), nodes=())
    lone = replace(lone, edges=(), parameter_stats=(), tensor_stats=(), steps=(), events=())
    assert module_map(Report.from_recording(lone)) is None
