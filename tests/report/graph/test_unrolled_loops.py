"""The turns of an unrolled loop are drawn once."""

import re
import sys

import pytest
import torch
from torch import nn

from gradscope.cli.streams import make_console
from gradscope.report.graph.labels import vertex_text
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.render import render_graph
from gradscope.report.page import UNICODE
from gradscope.session.api import inspect

STEPS = 9
TIMES = UNICODE.times


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x):
        state = torch.zeros(2, 4)
        for step in range(STEPS):
            state = torch.tanh(self.outer(x[step]) + self.inner(state))
        return state


class Layers(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def report_of(model, *shape):
    torch.manual_seed(0)
    return inspect(model, torch.randn(*shape), lambda out: out.square().mean(), probe_steps=0)


@pytest.fixture(scope="module")
def recurrent():
    return report_of(Recurrent(), STEPS, 2, 4)


def drawn(report, **options):
    part = graph_part(report, GraphOptions(**{"folds_repeats": True, "max_nodes": 200} | options))
    names = {one.index: vertex_text(one)[0] for one in part.vertices}
    return part, names


def links(part, names, kind):
    return {(names[one.source], names[one.target]) for one in part.links if one.kind == kind}


def test_operations_of_all_turns_are_one_vertex(recurrent):
    part, names = drawn(recurrent)
    operations = [names[one.index] for one in part.vertices if one.kind == "operation"]
    many = f"{TIMES}{STEPS}"
    assert sorted(operations) == sorted(
        [f"Add {many}", f"Tanh {many}", f"Addmm {many}", f"Addmm {many}", "Pow", "Mean"]
    )


def test_what_a_turn_hands_the_next_is_a_link_of_its_own(recurrent):
    part, names = drawn(recurrent)
    many = f"{TIMES}{STEPS}"
    assert links(part, names, "next") == {(f"Tanh {many}", f"Addmm {many}")}
    (back,) = [one for one in part.links if one.kind == "next"]
    # All but the last turn hand their state on.
    states = [
        row.grad.norm
        for row in recurrent.tensors
        if row.operation == "TanhBackward0" and row.grad is not None
    ]
    assert len(states) == STEPS
    assert back.norms.low == pytest.approx(min(states), rel=1e-6)
    assert back.norms.high < max(states)


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg"])
def test_each_picture_has_the_turns_once(recurrent, form):
    options = GraphOptions(folds_repeats=True)
    text = render_graph(recurrent, form, options, make_console(sys.stdout, "never")).text
    assert len(re.findall("Tanh", text.replace("TanhBackward0", ""))) == 1


def test_unfolded_turns_are_drawn_one_by_one(recurrent):
    part, names = drawn(recurrent, folds_repeats=False)
    assert list(names.values()).count("Tanh") == STEPS
    assert not links(part, names, "next")


def test_turns_of_different_layers_are_not_one():
    _, names = drawn(report_of(Layers([4, 5, 6, 7, 8, 9]), 2, 4))
    assert list(names.values()).count("Tanh") == 5


def test_turns_of_equal_layers_are_one():
    _, names = drawn(report_of(Layers([4] * 6), 2, 4))
    assert f"Tanh {TIMES}5" in names.values()


def text_of(report):
    return render_graph(report, "text", GraphOptions(), make_console(sys.stdout, "never")).text


def test_text_counts_the_operations_of_one_turn(recurrent):
    text = text_of(recurrent)
    assert f"{STEPS} turns of (Add, Tanh)" in text
    assert text.count(f"{STEPS} calls of Addmm\n") == 2
    assert f"Tanh {TIMES}5" in text_of(report_of(Layers([4] * 6), 2, 4))


def test_text_shows_the_gradient_over_the_turns(recurrent):
    (line,) = [line for line in text_of(recurrent).splitlines() if line.startswith("loop")]
    strip = re.fullmatch(rf"loop +gradient by turn, \S+: 0 (\S+) {STEPS - 1}", line)
    assert strip is not None
    levels = [UNICODE.levels.index(sign) for sign in strip[1]]
    # The gradient vanishes towards the first turn.
    assert levels == sorted(levels)
    assert levels[0] < levels[-1]
    assert "loop" not in text_of(report_of(Layers([4] * 3), 2, 4))
