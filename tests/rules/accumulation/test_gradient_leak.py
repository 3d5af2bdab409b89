"""GS317, in loops of two networks that play each other."""

import inspect

import pytest

from tests.nightly import some_on_push
from tests.rules.accumulation.loops.two_players import LOOPS, SICK, players
from tests.rules.watching import findings_of


def told(name, folder, steps=8):
    found = findings_of(lambda: players(name, steps), folder)
    return [one for one in found if one.rule == "GS317"]


def backwards(name):
    lines, start = inspect.getsourcelines(LOOPS[name])
    return [number for number, line in enumerate(lines, start) if ".backward()" in line]


@pytest.mark.parametrize("name", some_on_push(SICK, 2))
def test_the_backward_that_leaves_the_gradients_is_named(name, tmp_path):
    (found,) = told(name, tmp_path)
    assert found.severity == "error"
    assert found.location.line == backwards(name)[SICK[name]]
    entries = [one for one in found.related if "not detached" in one.message]
    # Only in `upstream` the loss of one network takes what the leaked-to network made.
    assert [one.source for one in entries] == ["logits = self.judge(points)"] * (name == "upstream")
    assert len(found.related) == 2 + len(entries)


@pytest.mark.parametrize("name", some_on_push(sorted(LOOPS.keys() - SICK), 3))
def test_loops_that_keep_the_losses_apart_are_fine(name, tmp_path):
    assert not told(name, tmp_path)


def test_two_steps_are_near_but_may_be_chance(tmp_path):
    assert not told("leaking", tmp_path, steps=2)
