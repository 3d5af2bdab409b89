import math
from random import Random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gradscope.report.html.charts.axes import MOST_MARKS, thinned
from gradscope.report.html.charts.depth import depth
from gradscope.report.html.charts.forward_order import ForwardOrder
from gradscope.session.api import inspect
from gradscope.session.report import Report
from tests.report.conftest import build_hostile
from tests.report.html.charts.conftest import REPORTS
from tests.report.html.figures import assert_valid, labels, shown, trace


def kind_of(row):
    """Where a row belongs, told anew from its numbers."""
    if row.grad is None:
        if getattr(row, "reach", "") == "frozen":
            return "frozen"
        return "no gradient"
    if not math.isfinite(row.grad.norm):
        return "NaN, inf"
    return "axis" if row.grad.norm else "zero"


def strip_marks(figure, link):
    """By index of a row: the title of the strip that its mark lies in."""
    axes = {
        "y2": figure["layout"].get("yaxis2", {}).get("ticktext", []),
        "y3": figure["layout"].get("yaxis3", {}).get("ticktext", []),
    }
    return {
        row: axes[one["yaxis"]][round(y)]
        for one in figure["data"]
        if link in one.get("meta", {}).get("links", {}) and "yaxis" in one
        for row, y in zip(one["meta"]["links"][link], one["y"], strict=True)
    }


@given(REPORTS)
def test_every_row_is_drawn_once_where_its_number_belongs(report):
    figure = shown(depth(report))
    for rows, name, link in (
        (report.tensors, "tensors", "tensor"),
        (report.parameters, "parameters", "parameter"),
    ):
        on_axis = trace(figure, name)
        drawn = dict(zip(on_axis["meta"]["links"][link], on_axis["y"], strict=True))
        strips = strip_marks(figure, link)
        for index, row in enumerate(rows):
            kind = kind_of(row)
            if kind == "axis":
                assert drawn.pop(index) == row.grad.norm
            else:
                assert strips.pop(index) == kind
        assert not drawn
        assert not strips


@given(REPORTS)
def test_what_is_drawn_instead_of_norms_is_the_reports(report):
    chart = depth(report)
    measures = {
        "per element": lambda row: row.grad.rms,
        "÷ weight": lambda row: row.grad_to_weight,
        "update ÷ weight": lambda row: row.update_to_weight,
    }
    for label in labels(chart)[1:]:
        found = trace(shown(chart, label), "parameters")
        for index, y in zip(found["meta"]["links"]["parameter"], found["y"], strict=True):
            value = measures[label](report.parameters[index])
            assert y == (value if value and math.isfinite(value) else None)


def test_tensors_have_no_weight_to_be_compared_with(report):
    figure = shown(depth(report), "÷ weight")
    assert trace(figure, "tensors")["visible"] is False
    assert figure["layout"]["yaxis"]["title"]["text"] == "gradient norm / weight norm"


@settings(max_examples=10, deadline=None)
@given(REPORTS)
def test_plotly_takes_the_figure(report):
    assert_valid(depth(report))


def test_a_parameter_stands_at_the_first_tensor_made_with_it(report):
    order = ForwardOrder(report)
    made = [row.operation for row in order.tensors]
    assert made == ["AddmmBackward0", "ReluBackward0", "AddmmBackward0", "MseLossBackward0"]
    positions = dict(
        zip([row.name for row in report.parameters], order.parameter_positions, strict=True)
    )
    assert positions["first.weight"] == positions["first.bias"] == order.tensor_positions[0]
    # By way of its transpose, which is no tensor of its own.
    assert positions["last.weight"] == positions["last.bias"] == order.tensor_positions[2]


def test_a_parameter_outside_the_graph_has_a_place_of_its_own(report):
    order = ForwardOrder(report)
    frozen = order.parameter_positions[4]
    assert frozen not in order.tensor_positions
    # Registered after `last`.
    assert order.tensor_positions[2] < frozen < order.tensor_positions[3]
    assert report.modules[order.modules[frozen]].path == "head.scale"


def test_stretches_cover_the_axis_and_name_the_modules(report):
    order = ForwardOrder(report)
    runs = order.runs()
    covered = [position for run in runs for position in range(run.first, run.last + 1)]
    assert covered == list(range(order.length))
    named = [report.modules[run.module].path for run in runs if run.module is not None]
    assert named == ["first", "act", "last", "head"]


def test_names_that_try_to_break_out_are_escaped():
    report = Report.from_recording(build_hostile())
    figure = shown(depth(report))
    names = " ".join(figure["layout"]["xaxis"]["ticktext"])
    assert "<script" not in names
    assert "m&lt;scrip…" in names
    assert "\n" not in names


@given(st.integers(), st.integers(1, 3000))
def test_thinning_keeps_the_extremes_in_their_order(seed, more):
    random = Random(seed)
    values = [10 ** random.uniform(-30, 30) for _ in range(MOST_MARKS + more)]
    kept = thinned(list(range(len(values))), [values])
    assert kept == sorted(set(kept))
    assert min(values[at] for at in kept) == min(values)
    assert max(values[at] for at in kept) == max(values)
    assert len(kept) <= MOST_MARKS


def test_few_marks_are_all_kept():
    assert thinned(list(range(MOST_MARKS)), [[1.0] * MOST_MARKS]) == list(range(MOST_MARKS))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        state = torch.zeros(2, 4)
        for time in range(x.shape[1]):
            state = torch.tanh(self.step(x[:, time]) + state)
        return self.head(state)


def test_steps_of_a_loop_have_an_axis_of_their_own():
    torch.manual_seed(0)
    batch = torch.randn(2, 40, 4)
    report = inspect(Recurrent(), batch, lambda out: out.mean(), probe_steps=0)
    axis = shown(depth(report))["layout"]["xaxis2"]
    assert axis["ticktext"] == ["0", "5", "10", "15", "20", "25", "30", "35"]
    order = ForwardOrder(report)
    # The nth tanh is in the nth step, and a step has three tensors.
    places = [
        position
        for row, position in zip(order.tensors, order.tensor_positions, strict=True)
        if row.operation == "TanhBackward0"
    ]
    for text, position in zip(axis["ticktext"], axis["tickvals"], strict=True):
        assert abs(position - places[int(text)]) < 3


def test_forward_without_a_loop_has_no_such_axis(report):
    assert "xaxis2" not in shown(depth(report))["layout"]
