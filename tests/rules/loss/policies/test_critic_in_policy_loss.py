"""GS705: advantages that train the critic, and products that look like them."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional

from tests.nightly import some_on_push

G = torch.Generator().manual_seed(1)
STATE = torch.randn(20, 5, generator=G)
ACTION = torch.randint(3, (20,), generator=G)
RETURNS = torch.randn(20, generator=G)
BATCH = (STATE, ACTION, RETURNS)


class Agent(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)
        self.log_std = nn.Parameter(torch.zeros(()))

    def forward(self, state):
        hidden = self.trunk(state)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def told(findings):
    return [finding.severity for finding in findings if finding.rule == "GS705"]


def discrete(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    advantage = returns - value
    policy = -(Categorical(logits=logits).log_prob(action) * advantage).mean()
    return policy + functional.mse_loss(value, returns)


def by_cross_entropy(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    return (functional.cross_entropy(logits, action, reduction="none") * (returns - value)).mean()


def normalised(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    advantage = returns - value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (Categorical(logits=logits).log_prob(action) + 1.1).exp()
    return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()


def temporal_difference(model, batch):
    state, action, reward = batch
    logits, value = model(state)
    _, following = model(state.roll(-1, 0))
    error = reward + 0.9 * following.detach() - value
    return -(Categorical(logits=logits).log_prob(action) * error).mean() + error.pow(2).mean()


def continuous(model, batch):
    state, action, returns = batch
    mean, value = model(state)
    policy = Normal(mean[:, 0], model.log_std.exp())
    return -(policy.log_prob(action.float()) * (returns - value)).sum()


def step_by_step(model, batch):
    terms = []
    for state, action, returns in zip(*batch, strict=True):
        logits, value = model(state)
        terms.append(-Categorical(logits=logits).log_prob(action) * (returns - value))
    return torch.stack(terms).mean()


SICK = [discrete, by_cross_entropy, normalised, temporal_difference, continuous, step_by_step]


@pytest.mark.parametrize("loss", some_on_push(SICK, 3), ids=[loss.__name__ for loss in SICK])
def test_an_advantage_with_a_gradient_is_an_error(findings_of, loss):
    assert told(findings_of(Agent(), BATCH, loss)) == ["error"]


def detached(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    policy = -(Categorical(logits=logits).log_prob(action) * (returns - value).detach()).mean()
    return policy + functional.mse_loss(value, returns)


def entropy(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    policy = Categorical(logits=logits)
    weight = (returns - value).detach()
    return -(policy.log_prob(action) * weight).mean() - 0.1 * policy.entropy().mean() + value.mean()


def focal(model, batch):
    state, action, _ = batch
    logits, _ = model(state)
    log_p = logits.log_softmax(1).gather(1, action[:, None])
    return -((1 - log_p.exp()) * log_p).mean()


def uncertain_regression(model, batch):
    state, _, returns = batch
    output, spread = model(state)
    return ((-spread).exp() * (returns - output[:, 0]).pow(2) + spread).mean()


def mixture_of_likelihoods(model, batch):
    state, action, _ = batch
    logits, gate = model(state)
    log_p, share = logits.log_softmax(1).gather(1, action[:, None])[:, 0], gate.sigmoid()
    return -(share * log_p + (1 - share) * -1.1).mean()


def soft_actor(model, batch):
    state, _, _ = batch
    logits, value = model(state)
    log_p = logits.log_softmax(1)
    return (log_p.exp() * (0.2 * log_p - value[:, None])).sum(1).mean()


def learned_temperature(model, batch):
    state, action, _ = batch
    logits, scale = model(state)
    return functional.cross_entropy(logits * functional.softplus(scale)[:, None], action)


def correlation(model, batch):
    state, _, returns = batch
    output, value = model(state)
    return -((output[:, 0] - returns.mean()) * (value - returns.mean())).mean()


def supervised(model, batch):
    state, action, returns = batch
    logits, value = model(state)
    return functional.cross_entropy(logits, action) + functional.mse_loss(value, returns)


HEALTHY = [
    detached,
    entropy,
    focal,
    uncertain_regression,
    mixture_of_likelihoods,
    soft_actor,
    learned_temperature,
    correlation,
    supervised,
]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, 3), ids=[loss.__name__ for loss in HEALTHY])
def test_other_products_are_fine(findings_of, loss):
    assert not told(findings_of(Agent(), BATCH, loss))


def test_a_critic_that_no_step_trains_is_near_but_fine(findings_of):
    model = Agent()
    model.critic.requires_grad_(False)
    for parameter in model.trunk.parameters():
        parameter.requires_grad_(False)
    assert not told(findings_of(model, BATCH, discrete))


class Tempered(nn.Module):
    """A policy with a learned temperature of its entropy."""

    def __init__(self, log_alpha=0.0):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
        self.log_alpha = nn.Parameter(torch.full((1,), log_alpha))

    def forward(self, state):
        return self.actor(state)


def tempered(*, alone: bool, detaches: bool = True, same: bool = True):
    """A loss of the policy with a detached temperature, and one of the temperature."""

    def loss(model, batch):
        state, _, returns = batch
        logp = model(state).log_softmax(1)
        mean = (logp.exp() * logp).sum(1)
        alpha = model.log_alpha.exp()
        weight = alpha.detach() if detaches else alpha
        policy = (weight * mean - logp.exp()[:, 0] * returns).mean()
        other = mean if same else logp.amax(1)
        return policy - (alpha * ((other.detach() if alone else other) + 1.0)).mean()

    return loss


def test_a_temperature_whose_loss_trains_the_policy_is_a_warning(findings_of):
    findings = findings_of(Tempered(), BATCH, tempered(alone=False))
    (found,) = (one for one in findings if one.rule == "GS705")
    assert found.severity == "warning"
    assert "log_alpha" in found.message
    assert found.location.source.startswith("return policy - (alpha *")
    assert not any("log_alpha" in name for name in found.parameters)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(tempered(alone=True), id="its own loss detaches the policy"),
        pytest.param(tempered(alone=False, detaches=False), id="one weight, trained everywhere"),
        pytest.param(tempered(alone=False, same=False), id="another tensor"),
    ],
)
def test_learned_weights_that_are_fine(findings_of, loss):
    assert not told(findings_of(Tempered(), BATCH, loss))


def with_constant(constant):
    """The same loss with a temperature that was detached before this forward."""

    def loss(model, batch):
        state, _, returns = batch
        logp = model(state).log_softmax(1)
        mean = (logp.exp() * logp).sum(1)
        policy = (constant * mean - logp.exp()[:, 0] * returns).mean()
        return policy - (model.log_alpha.exp() * (mean + 1.0)).mean()

    return loss


@pytest.mark.parametrize(
    ("log_alpha", "constant", "is_found"),
    [
        (-0.5, math.exp(-0.5), True),
        (-0.5, torch.tensor([-0.5]).exp(), True),
        (-0.5, 0.6, False),
        (0.0, 1.0, False),
    ],
    ids=["number", "tensor", "another number", "one"],
)
def test_a_temperature_that_was_detached_before_is_known_by_its_value(
    findings_of, log_alpha, constant, is_found
):
    found = findings_of(Tempered(log_alpha), BATCH, with_constant(constant))
    assert told(found) == ["warning"] * is_found
