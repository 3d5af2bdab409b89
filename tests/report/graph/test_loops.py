"""Loops in sequences, against sequences that are made of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.graph.loops import FEWEST_TURNS, loops


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
