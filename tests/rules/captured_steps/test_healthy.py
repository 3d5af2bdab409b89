"""Loops that are right, though single backward passes of them look wrong: nothing but notes."""

import pytest
import torch

from tests.nightly import some_on_push
from tests.rules.captured_steps.healthy_players import PLAYERS
from tests.rules.captured_steps.healthy_single import SINGLE
from tests.rules.watching import findings_of

LOOPS = (*PLAYERS, *SINGLE)


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 8), ids=[loop.__name__ for loop in LOOPS])
def test_a_right_loop_is_not_accused(loop, tmp_path):
    torch.manual_seed(0)
    found = findings_of(loop, tmp_path)
    assert [(one.rule, one.message) for one in found if one.severity != "note"] == []
