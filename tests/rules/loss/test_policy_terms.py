"""GS720: policy losses without their minus, and losses that only look like them."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

generator = torch.Generator().manual_seed(1)
STATES = torch.randn(32, 6, generator=generator)
actions = torch.randint(0, 3, (32,), generator=generator)
moves = torch.randn(32, 3, generator=generator)
rewards = torch.rand(32, generator=generator)
advantage = rewards - rewards.mean()
costs = -rewards
rows = torch.arange(32)
weights = torch.rand(32, generator=generator)


def policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def likelihood(out):
    return Categorical(logits=out).log_prob(actions)


def normal(out):
    return Independent(Normal(out, 0.5), 1).log_prob(moves)


def one_by_one(out):
    losses = []
    for log_prob, R in zip(likelihood(out), rewards, strict=True):
        losses.append(log_prob * R)
    return torch.stack(losses).sum()


WITHOUT_MINUS = {
    "advantages": lambda out: (likelihood(out) * advantage).mean(),
    "rewards": lambda out: (rewards * likelihood(out)).mean(),
    "less a baseline": lambda out: (likelihood(out) * (rewards - 0.5)).sum(),
    "twice": lambda out: -(-likelihood(out) * advantage).mean(),
    "negative likelihoods": lambda out: (
        -(functional.cross_entropy(out, actions, reduction="none") * advantage).mean()
    ),
    "log of probabilities": lambda out: (
        out.softmax(1)[rows, actions].log() * torch.as_tensor(rewards)
    ).mean(),
    "normal": lambda out: (normal(out) * advantage.detach()).mean(),
    "beside an entropy": lambda out: (
        (likelihood(out) * advantage).mean() - 0.01 * Categorical(logits=out).entropy().mean()
    ),
    "function": lambda out: torch.mul(likelihood(out), advantage).mean(),
    "one by one": one_by_one,
    "weighed": lambda out: (weights * likelihood(out) * rewards).mean(),
}

RIGHT = {
    "minus before a weight": lambda out: (-weights * likelihood(out) * rewards).mean(),
    "advantages": lambda out: -(likelihood(out) * advantage).mean(),
    "rewards": lambda out: (-rewards * likelihood(out)).mean(),
    "minus of likelihoods": lambda out: (-likelihood(out) * rewards).mean(),
    "subtracted": lambda out: 0.1 * out.square().mean() - (likelihood(out) * advantage).mean(),
    "negative likelihoods": lambda out: (
        functional.cross_entropy(out, actions, reduction="none") * advantage
    ).mean(),
    "costs": lambda out: (likelihood(out) * costs).mean(),
    "less than a baseline": lambda out: (likelihood(out) * (0.5 - rewards)).mean(),
    "normal": lambda out: -(normal(out) * advantage).mean(),
    "no likelihood": lambda out: (out[:, 0] * rewards).mean(),
    "ranked": lambda out: (likelihood(out) * torch.argsort(-rewards)).mean(),
}


def told(findings):
    return [one for one in findings if one.rule == "GS720"]


@pytest.mark.parametrize("name", some_on_push(WITHOUT_MINUS, 5))
def test_likelihood_times_reward_without_minus_is_an_error(findings_of, name):
    loss = WITHOUT_MINUS[name]
    (found,) = told(findings_of(policy(), STATES, lambda model, batch: loss(model(batch))))
    assert found.severity == "error"
    assert "wrong sign" in found.message


@pytest.mark.parametrize("name", some_on_push(RIGHT, 5))
def test_likelihood_of_rewards_that_becomes_larger_is_fine(findings_of, name):
    loss = RIGHT[name]
    assert not told(findings_of(policy(), STATES, lambda model, batch: loss(model(batch))))


TRAINING = """
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy, critic = nn.Linear(6, 3), nn.Linear(6, 1)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1{options})
critics = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(6):
    state = torch.randn(32, 6)
    dist = Categorical(logits=policy(state))
    action = dist.sample()
    reward = (action == 1).float()
    value = critic(state).squeeze(1)
    critics.zero_grad()
    (reward - value).pow(2).mean().backward()
    critics.step()
    advantage = {advantage}
    loss = (dist.log_prob(action) * advantage).mean()
    optimizer.zero_grad()
    ({loss}).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("advantage", "loss", "options", "is_wrong"),
    some_on_push(
        [
            ("reward - value.detach()", "loss", "", True),
            ("reward - value.detach()", "-loss", "", False),
            ("value.detach() - reward", "loss", "", False),
            ("reward - reward.mean()", "loss", "", True),
            ("reward - value.detach()", "loss", ", maximize=True", False),
        ],
        3,
    ),
)
def test_actor_and_critic_with_an_optimizer_each(tmp_path, advantage, loss, options, is_wrong):
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(advantage=advantage, loss=loss, options=options))
    found = told(findings_of_script(script, tmp_path))
    assert bool(found) == is_wrong
    if is_wrong:
        assert found[0].location.source.strip().startswith("loss = ")


old = likelihood(policy()(STATES)).detach()


def clipped(out):
    ratio = (likelihood(out) - old).exp()
    return torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()


def entropy(out):
    return Categorical(logits=out).entropy().mean()


def entropy_by_hand(out):
    return -(out.softmax(1) * out.log_softmax(1)).sum(1).mean()


ENTROPIES_OF_WRONG_SIGN = {
    "beside rewards": lambda out: -(likelihood(out) * rewards).mean() + 0.01 * entropy(out),
    "beside numbers of both signs": lambda out: (
        -(likelihood(out) * (weights - 0.5)).mean() + 0.01 * entropy(out)
    ),
    "beside surrogates": lambda out: clipped(out) + 0.01 * entropy(out),
    "by hand": lambda out: clipped(out) + 0.01 * entropy_by_hand(out),
    "of probabilities": lambda out: (
        clipped(out) + 0.01 * Categorical(probs=out.softmax(1)).entropy().mean()
    ),
}
ENTROPIES = {
    "beside rewards": lambda out: -(likelihood(out) * rewards).mean() - 0.01 * entropy(out),
    "beside surrogates": lambda out: clipped(out) - 0.01 * entropy(out),
    "by hand": lambda out: clipped(out) - 0.01 * entropy_by_hand(out),
    "beside numbers of both signs": lambda out: (
        -(likelihood(out) * (weights - 0.5)).mean() - 0.01 * entropy(out)
    ),
    "beside examples that count differently": lambda out: (
        -(likelihood(out) * weights).mean() + 0.01 * entropy(out)
    ),
    "of unlabelled examples": lambda out: functional.cross_entropy(out, actions) + entropy(out),
}


@pytest.mark.parametrize("name", some_on_push(ENTROPIES_OF_WRONG_SIGN, 2))
def test_entropy_that_a_policy_loss_makes_smaller_is_a_warning(findings_of, name):
    loss = ENTROPIES_OF_WRONG_SIGN[name]
    (found,) = told(findings_of(policy(), STATES, lambda model, batch: loss(model(batch))))
    assert found.severity == "warning"
    assert "entropy" in found.message


@pytest.mark.parametrize("name", some_on_push(ENTROPIES, 2))
def test_entropy_that_becomes_larger_or_of_no_policy_is_fine(findings_of, name):
    loss = ENTROPIES[name]
    assert not told(findings_of(policy(), STATES, lambda model, batch: loss(model(batch))))
