"""GS716, judged from policies that are trained in different ways."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from tests.nightly import some_on_push
from tests.rules import watching

EPOCHS = 4


class Discrete(nn.Module):
    """Chooses one of three actions."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, states):
        return Categorical(logits=self.logits(states))


class Continuous(nn.Module):
    """Chooses one number."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 1)
        self.spread = nn.Parameter(torch.zeros(1))

    def forward(self, states):
        return Normal(self.mean(states).squeeze(1), self.spread.exp())


def kept(advantages):
    return advantages


def normalised(advantages):
    """Advantages with the mean and the deviation of the states of one step."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def trained(
    tmp_path,
    policy,
    *,
    recomputed,
    epochs=EPOCHS,
    parts=1,
    rewards=torch.randn,
    scaled=kept,
):
    """Train a policy by PPO.

    Args:
        policy: Class of the policy.
        recomputed: Compute the old log-probabilities before each step.
        epochs: Number of times that each state trains it.
        parts: Number of steps per epoch, each on other states.
        rewards: Makes the reward of each of so many states.
        scaled: Makes the advantages of a step of their rewards.
    """
    torch.manual_seed(0)
    policy = policy()
    adam = torch.optim.Adam(policy.parameters(), lr=0.02)

    def train():
        for _ in range(6):
            states = torch.randn(32, 4)
            with torch.no_grad():
                actions = policy(states).sample()
                stored = policy(states).log_prob(actions)
            advantages = rewards(32)
            for _ in range(epochs):
                for part in torch.randperm(32).chunk(parts):
                    with torch.no_grad():
                        again = policy(states[part]).log_prob(actions[part])
                    old = again if recomputed else stored[part]
                    ratio = (policy(states[part]).log_prob(actions[part]) - old).exp()
                    clipped = torch.clamp(ratio, 0.8, 1.2)
                    gained = scaled(advantages[part])
                    loss = -torch.min(gained * ratio, gained * clipped).mean()
                    adam.zero_grad()
                    loss.backward()
                    adam.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS716"]


@pytest.mark.parametrize("policy", [Discrete, Continuous])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("scaled", [kept, normalised])
def test_old_probabilities_of_the_current_policy_are_found(policy, parts, scaled, tmp_path):
    (found,) = trained(tmp_path, policy, recomputed=True, parts=parts, scaled=scaled)
    assert found.severity == "warning"
    assert found.location.source.startswith("ratio = ")
    assert dict(found.evidence)["ratios"] == 32 // parts


def correct(count):
    """Rewards of 0 and 1, as for answers that are right or wrong."""
    return torch.randint(0, 2, (count,)).float()


def graded(count):
    """Rewards of few different numbers, as of a rubric: other data have the same."""
    return torch.randint(0, 20, (count,)).float()


@pytest.mark.parametrize(
    "chosen",
    some_on_push(
        [
            {"recomputed": False},
            {"recomputed": False, "parts": 2},
            {"recomputed": True, "epochs": 1},
            {"recomputed": True, "epochs": 1, "parts": 2},
            {"recomputed": True, "epochs": 1, "rewards": correct},
            {"recomputed": False, "epochs": 1},
            {"recomputed": False, "parts": 2, "scaled": normalised},
            {"recomputed": True, "epochs": 1, "parts": 2, "scaled": normalised},
            {"recomputed": True, "epochs": 1, "rewards": graded, "scaled": normalised},
        ],
        3,
    ),
    ids=[
        "stored",
        "in parts",
        "once",
        "once in parts",
        "rewards of 0 and 1",
        "stored once",
        "stored and normalised",
        "once and normalised",
        "grades",
    ],
)
def test_ratios_of_other_policies_and_of_new_data_are_fine(chosen, tmp_path):
    assert not trained(tmp_path, Discrete, **chosen)


def detached(output, old):
    """The gradient of a log-probability, written as that of a ratio."""
    ratio = (output - output.detach()).exp()
    return ratio, ratio.clamp(0.8, 1.2)


def unclipped(output, old):
    ratio = (output - old).exp()
    return ratio, ratio


def clipped(output, old):
    ratio = (output - old).exp()
    return ratio, ratio.clamp(0.8, 1.2)


@pytest.mark.parametrize(
    ("weigh", "count"), some_on_push([(detached, 0), (unclipped, 0), (clipped, 1)], 2)
)
def test_only_ratios_with_a_clip_and_a_forward_of_their_own_are_found(weigh, count, tmp_path):
    """The same examples have the same weights in every step."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    states, weights = torch.randn(32, 4), torch.rand(32)

    def train():
        for _ in range(6):
            with torch.no_grad():
                old = model(states).squeeze(1)
            ratio, limited = weigh(model(states).squeeze(1), old)
            loss = -torch.min(ratio * weights, limited * weights).mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()

    found = [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS716"]
    assert len(found) == count
