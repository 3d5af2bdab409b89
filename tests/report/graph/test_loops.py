"""Loops in sequences, against sequences that are made of them."""

import re
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gradscope.cli.console import make_console
from gradscope.report.graph.labels import vertex_text
from gradscope.report.graph.loops import FEWEST_TURNS, loops
from gradscope.report.graph.part import GraphOptions, graph_part
from gradscope.report.graph.render import render_graph
from gradscope.report.page import UNICODE
from gradscope.session.api import inspect

STEPS = 9
TIMES = UNICODE.times


def told(keys):
    """Each loop as its number of turns and what each entry is: position, turn and offset."""
    return [[(one.position, one.turn, one.offset) for one in loop] for loop in loops(keys)]


@given(st.lists(st.integers(0, 30), unique=True, max_size=20))
def test_what_repeats_nothing_has_no_loops(keys):
    assert not told(keys)


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1),
    st.integers(FEWEST_TURNS, 9),
    st.lists(st.integers(), unique=True, max_size=5),
)
def test_every_entry_of_a_loop_has_its_turn_and_offset(body, turns, around):
    keys = [*around, *body * turns, *map(str, around)]
    (loop,) = told(keys)
    length = len(body)
    assert loop == [
        (len(around) + turn * length + offset, turn, offset)
        for turn in range(turns)
        for offset in range(length)
    ]


@pytest.mark.parametrize(("turns", "found"), [(FEWEST_TURNS - 1, 0), (FEWEST_TURNS, 1)])
def test_few_turns_are_no_loop(turns, found):
    assert len(told(list("ab") * turns)) == found


def test_entry_that_a_turn_repeats_is_part_of_the_turn():
    (loop,) = told(list("aab") * 5)
    assert [offset for _, _, offset in loop] == [0, 1, 2] * 5


def test_first_turn_may_be_incomplete():
    keys = [*"acd", *list("abcd") * 6]
    (loop,) = told(keys)
    turns = [turn for _, turn, _ in loop]
    assert turns == [0, 0, 0, *(turn for turn in range(1, 7) for _ in range(4))]
    same = {}
    for position, _, offset in loop:
        assert same.setdefault(offset, keys[position]) == keys[position]


def test_last_turn_may_be_incomplete():
    (loop,) = told([*list("abcd") * 6, *"ac", "end"])
    assert [(turn, offset) for _, turn, offset in loop][-2:] == [(6, 0), (6, 2)]


def test_loops_that_follow_each_other_are_apart():
    first, second = told([*list("ab") * 5, "x", *list("cd") * 7])
    assert (first[-1][0], second[0][0]) == (9, 11)
    assert (first[-1][1], second[-1][1]) == (4, 6)


def test_long_sequences_take_little_time():
    keys = [number.bit_count() % 2 for number in range(100_000)]
    assert not told(keys)


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
