"""GS736: probabilities of actions that rewards weigh without a logarithm."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.inspecting import only

generator = torch.Generator().manual_seed(1)
STATES = torch.randn(32, 6, generator=generator)
actions = torch.randint(0, 3, (32,), generator=generator)
rewards = torch.rand(32, generator=generator)
advantage = rewards - rewards.mean()
propensity = torch.rand(32, generator=generator) + 0.1
weighted_rewards = rewards / propensity
rows = torch.arange(32)


def policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3), nn.Softmax(1))


def chosen(probs):
    return probs.gather(1, actions[:, None]).squeeze(1)


def one_step(probs):
    prob, R = probs[0][actions[0]], 0.7
    return -prob * R


def all_actions(probs):
    returns = [0.2, 0.7, 0.1]
    return -sum(probs[0, action] * returns[action] for action in range(3))


SICK = {
    "gathered": lambda probs: -(chosen(probs) * advantage).mean(),
    "indexed": lambda probs: (-probs[rows, actions] * rewards).sum(),
    "one step": one_step,
}

HEALTHY = {
    "logarithm": lambda probs: -(chosen(probs).log() * advantage).mean(),
    "logarithm beside a clamp": lambda probs: (
        -(probs[rows, actions].clamp(1e-6).log() * rewards).sum()
    ),
    "corrected": lambda probs: -(chosen(probs) * (rewards / propensity)).mean(),
    "corrected before": lambda probs: -(chosen(probs) * weighted_rewards).mean(),
    "ratio": lambda probs: -(chosen(probs) / propensity * advantage).mean(),
    "expectation": lambda probs: -(probs * rewards[:, None]).sum(1).mean(),
    "all actions": all_actions,
    "no reward": lambda probs: -(chosen(probs) * propensity).mean(),
}


@pytest.mark.parametrize("name", SICK)
def test_a_probability_that_a_reward_weighs_is_a_warning(findings_of, name):
    found = only(findings_of(policy(), STATES, lambda model, x: SICK[name](model(x))), "GS736")
    assert found.severity == "warning"
    assert found.location.file.endswith("test_probability_as_likelihood.py")


@pytest.mark.parametrize("name", some_on_push(HEALTHY, {0, 2, 4, 5, 6}))
def test_likelihoods_and_expectations_are_fine(findings_of, name):
    found = findings_of(policy(), STATES, lambda model, x: HEALTHY[name](model(x)))
    assert not [one for one in found if one.rule == "GS736"]
