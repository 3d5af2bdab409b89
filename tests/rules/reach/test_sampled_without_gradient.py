"""GS217: samples that should carry a gradient, and samples that need not."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn import functional

from tests.nightly import some_on_push

G = torch.Generator().manual_seed(1)
X = torch.randn(16, 6, generator=G)
ACTION = torch.randn(16, 2, generator=G)
RETURNS = torch.randn(16, generator=G)


def told(findings):
    return [finding.severity for finding in findings if finding.rule == "GS217"]


class Model(nn.Module):
    """An encoder of mean and spread, a decoder, and a critic."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)
        self.critic = nn.Linear(8, 1)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, dim=1)
        return Normal(mean, functional.softplus(spread) + 1e-3)


def divergence(posterior):
    return kl_divergence(posterior, Normal(torch.zeros(2), torch.ones(2))).sum(1).mean()


def sampled(model, x):
    posterior = model(x)
    return functional.mse_loss(model.decoder(posterior.sample()), x) + divergence(posterior)


def drawn_under_no_grad(model, x):
    posterior = model(x)
    with torch.no_grad():
        code = posterior.rsample()
        code = posterior.sample() + 0 * code
    return functional.mse_loss(model.decoder(code), x) + divergence(posterior)


def by_torch_normal(model, x):
    posterior = model(x)
    code = torch.normal(posterior.mean, posterior.stddev)
    return functional.mse_loss(model.decoder(code), x) + divergence(posterior)


def with_correlations(model, x):
    posterior = model(x)
    joint = MultivariateNormal(posterior.mean, torch.diag_embed(posterior.stddev))
    code = joint.sample()
    return functional.mse_loss(model.decoder(code), x) + divergence(posterior)


def soft_actor_of_a_frozen_critic(model, x):
    model.critic.requires_grad_(False)
    policy = model(x)
    action = policy.sample()
    value = model.critic(torch.cat([x, action], 1))
    return (0.1 * policy.log_prob(action).sum(1, keepdim=True) - value).mean()


def detached_after_the_draw(model, x):
    posterior = model(x)
    code = posterior.rsample().detach()
    return functional.mse_loss(model.decoder(code), x) + divergence(posterior)


def data_of_mean_and_noise(model, x):
    mean, spread = model.encoder(x).chunk(2, dim=1)
    code = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
    kept = 0.5 * (mean.pow(2) + spread.exp() - spread - 1).sum(1).mean()
    return functional.mse_loss(model.decoder(code.data), x) + kept


SICK = [
    detached_after_the_draw,
    data_of_mean_and_noise,
    sampled,
    drawn_under_no_grad,
    by_torch_normal,
    with_correlations,
    soft_actor_of_a_frozen_critic,
]


@pytest.mark.parametrize("loss", some_on_push(SICK, 3), ids=[loss.__name__ for loss in SICK])
def test_a_sample_that_should_carry_a_gradient_is_an_error(findings_of, loss):
    assert told(findings_of(Model(), X, loss)) == ["error"]


def reparameterised(model, x):
    posterior = model(x)
    return functional.mse_loss(model.decoder(posterior.rsample()), x) + divergence(posterior)


def policy_gradient(model, x):
    policy = Independent(model(x), 1)
    action = policy.sample()
    return -(policy.log_prob(action) * RETURNS).mean() - 0.01 * policy.entropy().mean()


def policy_gradient_with_a_critic_of_actions(model, x):
    policy = model(x)
    action = policy.sample()
    value = model.critic(torch.cat([x, action], 1)).squeeze(1)
    policy_loss = -(policy.log_prob(action).sum(1) * value.detach()).mean()
    return policy_loss + functional.mse_loss(value, RETURNS)


def likelihood_of_data(model, x):
    policy = model(x)
    noisy = x + Normal(torch.zeros(6), torch.full((6,), 0.1)).sample()
    return -policy.log_prob(ACTION).mean() - model(noisy).log_prob(ACTION).mean()


def discrete_choice(model, x):
    choice = Categorical(logits=model.encoder(x))
    index = choice.sample()
    hidden = functional.one_hot(index, 4).float()[:, :2]
    reward = -(model.decoder(hidden) - x).pow(2).mean(1)
    return -(choice.log_prob(index) * reward.detach()).mean() - reward.mean()


def own_outputs_as_next_inputs(model, x):
    loss, following = 0.0, x
    for _ in range(3):
        policy = model(following)
        loss = loss - policy.log_prob(ACTION).mean()
        following = torch.cat([x[:, :4], policy.sample()], 1)
    return loss


def critic_on_actions_of_now(model, x):
    with torch.no_grad():
        action = model(x).sample()
    value = model.critic(torch.cat([x, action], 1)).squeeze(1)
    return functional.mse_loss(value, RETURNS) + divergence(model(x))


def second_stage_on_a_draw_that_learns(model, x):
    posterior = model(x)
    code = posterior.rsample()
    value = model.critic(torch.cat([x, code.detach()], 1)).squeeze(1)
    rebuilt = functional.mse_loss(model.decoder(code), x)
    return rebuilt + divergence(posterior) + functional.mse_loss(value, RETURNS)


def head_on_detached_features(model, x):
    hidden, change = model.encoder(x).chunk(2, dim=1)
    features = hidden + 0.1 * torch.tanh(change)
    probe = functional.mse_loss(model.decoder(features.detach()), x)
    return probe + (hidden - ACTION).pow(2).mean() + change.pow(2).mean()


def critic_on_a_detached_draw_of_now(model, x):
    action = model(x).rsample().detach()
    value = model.critic(torch.cat([x, action], 1)).squeeze(1)
    return functional.mse_loss(value, RETURNS) + divergence(model(x))


HEALTHY = [
    second_stage_on_a_draw_that_learns,
    head_on_detached_features,
    critic_on_a_detached_draw_of_now,
    reparameterised,
    policy_gradient,
    policy_gradient_with_a_critic_of_actions,
    likelihood_of_data,
    discrete_choice,
    own_outputs_as_next_inputs,
    critic_on_actions_of_now,
]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, 3), ids=[loss.__name__ for loss in HEALTHY])
def test_samples_that_need_no_gradient_are_fine(findings_of, loss):
    assert not told(findings_of(Model(), X, loss))


def test_an_encoder_without_any_gradient_is_near_but_another_mistake(findings_of):
    def loss(model, x):
        return functional.mse_loss(model.decoder(model(x).sample()), x)

    findings = findings_of(Model(), X, loss)
    assert not told(findings)
    assert {"GS202"} <= {one.rule for one in findings}
