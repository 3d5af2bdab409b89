"""GS222: optimizers that hold a critic beside what it judges."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
{networks}
own = torch.optim.Adam({own}, lr=0.001)
other = torch.optim.Adam({other}, lr=0.001)


def judge():
    made = maker(torch.randn(16, 4)){detach}
    one = torch.cat([made, torch.ones(16, 2)])
    score = {score}
    own.zero_grad()
    functional.softplus(torch.cat([score[:16], -score[16:]])).mean().backward()
    own.step()


def make():
    made = maker(torch.randn(16, 4))
    other.zero_grad()
    {loss}.backward()
    other.step()


{order}
"""

CRITIC, MAKER = "critic.parameters()", "maker.parameters()"
BOTH = "[*maker.parameters(), *critic.parameters()]"
PARTS = {
    "own": CRITIC,
    "other": BOTH,
    "detach": ".detach()",
    "networks": "",
    "score": "critic(one)",
    "loss": "functional.softplus(-critic(made)).mean()",
    "order": "for step in range(8):\n    judge()\n    make()",
}

TWO = {
    "networks": "second = nn.Linear(2, 1)",
    "own": "[*critic.parameters(), *second.parameters()]",
    "score": "critic(one) + second(one)",
}
SHARED = {
    "networks": "critic[2] = nn.Linear(8, 2)",
    "score": "critic(one)[:, :1]",
    "loss": "functional.softplus(-critic(made)[:, :1]).mean()",
}

PLAIN = {"networks": "critic = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(4)))"}

CASES = {
    "a generator's optimizer": ({}, True),
    "one of two critics": (TWO, True),
    "a part of a critic": (SHARED | {"other": "[*maker.parameters(), critic[0].weight]"}, False),
    "no_grad": ({"detach": ".data"}, True),
    "a critic without biases": (
        PLAIN
        | {"score": "critic(one)[:, :1]"}
        | {"loss": "functional.softplus(-critic(made)[:, :1]).mean()"},
        True,
    ),
    "each its own": ({"other": MAKER}, False),
    "the critic's optimizer holds both": ({"own": BOTH, "other": MAKER}, False),
    "the critic's loss trains both": ({"detach": ""}, False),
    "one after the other": (
        {"order": "for step in range(8):\n    judge()\nfor step in range(8):\n    make()"},
        False,
    ),
    "the other loss does not use it": ({"loss": "(made - 1).square().mean()"}, False),
}


@pytest.mark.parametrize("name", some_on_push(CASES, 3))
def test_an_optimizer_that_steps_a_critic_with_what_it_judges(name, tmp_path):
    changes, is_found = CASES[name]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**PARTS | changes))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS222"]
    assert len(found) == is_found
    for one in found:
        assert one.severity == "error"
        assert one.location.source.startswith("other = ")
        assert one.count == 4
