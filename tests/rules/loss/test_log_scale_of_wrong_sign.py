"""GS724: log-determinants and log-variances of the wrong sign, and those that balance a scale."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal
from torch.nn import functional

import gradscope
from gradscope.rules.helpers.loss.linear_ways import _sign_in_difference
from tests.nightly import some_on_push

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(3)) * 2 + 1


class Coupling(nn.Module):
    """One affine coupling; `way` says how the scale is made, `sign` that of its logarithm."""

    def __init__(self, way, sign):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
        self.way, self.sign = way, sign

    def forward(self, x):
        fixed, moved = x.chunk(2, dim=1)
        s, t = self.net(fixed).chunk(2, dim=1)
        if self.way == "exp":
            log = torch.tanh(s)
            moved = moved * torch.exp(log) + t
        elif self.way == "inverse":
            moved, log = (moved - t) * (-s).exp(), -s
        elif self.way == "divided":
            moved, log = (moved - t) / torch.exp(s), -s
        elif self.way == "sigmoid":
            scale = torch.sigmoid(s + 2)
            moved, log = (moved + t) * scale, torch.log(scale)
        else:
            scale = functional.softplus(s) + 1e-3
            moved, log = (moved - t) / scale, -scale.log()
        return torch.cat([moved, fixed], dim=1), self.sign * log.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, way, sign):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(way, sign) for _ in range(3))

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, own = layer(x)
            total = total + own
        return x, total


def squares(z):
    return -0.5 * (z**2).sum(dim=1) - 2 * math.log(2 * math.pi)


def normal(z):
    return Normal(0.0, 1.0).log_prob(z).sum(dim=1)


def joint(z):
    return MultivariateNormal(torch.zeros(4), torch.eye(4)).log_prob(z)


def independent(z):
    return Independent(Normal(torch.zeros(4), torch.ones(4)), 1).log_prob(z)


PRIORS = {one.__name__: one for one in (squares, normal, joint, independent)}
WAYS = ("exp", "inverse", "divided", "sigmoid", "softplus")
CASES = [(way, prior) for way in WAYS for prior in PRIORS]


def told(model, loss, batch=X):
    found = gradscope.inspect(model, batch, loss).findings
    return [one for one in found if one.rule == "GS724"]


def of_flow(way, prior, sign):
    torch.manual_seed(0)
    return told(Flow(way, sign), lambda out: -(PRIORS[prior](out[0]) + out[1]).mean())


@pytest.mark.parametrize(("way", "prior"), some_on_push(CASES, 6))
def test_a_log_determinant_of_the_wrong_sign_is_an_error(way, prior):
    (found,) = of_flow(way, prior, -1)
    assert found.severity == "error"
    assert found.parameters


@pytest.mark.parametrize(("way", "prior"), some_on_push(CASES, 6))
def test_the_log_determinant_of_a_flow_is_fine(way, prior):
    assert not of_flow(way, prior, 1)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_log_likelihood_without_its_minus_is_an_error(prior):
    torch.manual_seed(0)

    def loss(out):
        return (PRIORS[prior](out[0]) + out[1]).mean()  # here

    (found,) = told(Flow("exp", 1), loss)
    assert found.severity == "error"
    assert found.location.source.endswith("# here")


def test_the_log_likelihood_of_a_sample_may_become_smaller():
    """A policy draws, and each step makes what it has drawn less likely."""

    def loss(out):
        mean, log = out
        policy = Normal(mean, log.exp())
        return (0.2 * policy.log_prob(policy.rsample()) + mean.square()).mean()

    def likelihood(out):
        mean, log = out
        return Normal(mean, log.exp()).log_prob(X[:, :1]).mean()

    torch.manual_seed(0)
    assert not told(Heads(), loss)
    assert not told(Heads(), likelihood)


def test_the_line_that_turns_the_sign_is_told():
    torch.manual_seed(0)

    def loss(out):
        log_prob = normal(out[0])
        return -(log_prob - out[1]).mean()  # here

    (found,) = told(Flow("exp", 1), loss)
    assert found.location.source.endswith("# here")


class Mixed(nn.Module):
    """Glow's layers: a scale of each channel, an invertible convolution, and another scale."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList(0.5 + torch.rand(1, 4, 1, 1) for _ in range(2))
        self.shift = nn.Parameter(torch.zeros(1, 4, 1, 1))
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(4, 4)).Q[:, :, None, None])
        self.prior = nn.Parameter(torch.linspace(-0.2, 0.3, 4).view(1, 4, 1, 1))

    def forward(self, x):
        log_det = 0
        for scale in self.scales:
            x = functional.conv2d(scale * (x + self.shift), self.weight)
            log_det = log_det + 4 * torch.log(torch.abs(scale)).sum()
        far = -0.5 * (x - self.shift) ** 2 / torch.exp(2 * self.prior)
        return (far - self.prior).flatten(1).sum(1), log_det


IMAGES = torch.randn(8, 4, 2, 2, generator=torch.Generator().manual_seed(4))


def test_scales_before_an_invertible_convolution_are_followed():
    torch.manual_seed(0)
    (found,) = told(Mixed(), lambda out: -(out[0] - out[1]).mean(), IMAGES)
    assert found.parameters == ("scales.1",)
    assert not told(Mixed(), lambda out: -(out[0] + out[1]).mean(), IMAGES)


class Heads(nn.Module):
    """A mean and a log-variance of each target."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.mean, self.log_var = nn.Linear(16, 1), nn.Linear(16, 1)

    def forward(self, x):
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


def by_precision(mean, log, sign):
    return (0.5 * torch.exp(-log) * (X[:, :1] - mean) ** 2 + sign * 0.5 * log).mean()


def by_variance(mean, log, sign):
    return 0.5 * ((X[:, :1] - mean) ** 2 / log.exp() + sign * log).mean()


def by_deviation(mean, log, sign):
    return (((X[:, :1] - mean) / torch.exp(log)).square() / 2 + sign * log).mean()


def of_laplace(mean, log, sign):
    return ((X[:, :1] - mean).abs() * torch.exp(-log) + sign * log).mean()


LIKELIHOODS = (by_precision, by_variance, by_deviation, of_laplace)


@pytest.mark.parametrize("likelihood", some_on_push(LIKELIHOODS, 2))
def test_a_likelihood_that_rewards_its_spread_is_an_error(likelihood):
    torch.manual_seed(0)
    (found,) = told(Heads(), lambda out: likelihood(*out, -1))
    assert "larger the scale" in found.message or "smaller the scale" in found.message


@pytest.mark.parametrize("likelihood", some_on_push(LIKELIHOODS, 2))
def test_a_likelihood_that_balances_its_spread_is_fine(likelihood):
    torch.manual_seed(0)
    assert not told(Heads(), lambda out: likelihood(*out, 1))


class Weighed(nn.Module):
    """Two tasks with learned weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 1), nn.Linear(4, 3)
        self.logs = nn.Parameter(torch.tensor([0.1, -0.2]))

    def forward(self, x):
        return self.first(x), self.second(x), self.logs


def tasks(sign):
    def loss(out):
        first = functional.mse_loss(out[0], X[:, :1])
        second = functional.cross_entropy(out[1], X[:, :3].argmax(dim=1))
        losses = torch.stack([first, second])
        weighed = torch.exp(-out[2]) * losses
        return (weighed + out[2] if sign > 0 else weighed - out[2]).sum()

    return loss


def test_weights_of_tasks():
    torch.manual_seed(0)
    assert told(Weighed(), tasks(-1))
    assert not told(Weighed(), tasks(1))


class Autoencoder(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.mean, self.log_var = nn.Linear(4, width), nn.Linear(4, width)
        self.decoder = nn.Linear(width, 4)

    def forward(self, x):
        mean, log_var = self.mean(x), self.log_var(x)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decoder(code), mean, log_var


def elbo(out):
    output, mean, log_var = out
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(dim=1)
    return functional.mse_loss(output, X, reduction="sum") / len(X) + divergence.mean()


def test_the_divergence_of_an_autoencoder_is_fine():
    torch.manual_seed(0)
    assert not told(Autoencoder(), elbo)
    # A decoder that keeps the width is followed, as the layers of a flow are.
    assert not told(Autoencoder(4), elbo)


class Temperature(nn.Module):
    """Similarities with a learned temperature, and a policy with a learned deviation."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_std = nn.Linear(4, 2), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.mean(x), self.log_std


def contrast(out):
    logits = out[0] @ out[0].T * out[1].mean().exp()
    return functional.cross_entropy(logits, torch.arange(len(X)))


def contrast_with_penalty(out):
    return contrast(out) + 0.01 * out[1].square().sum()


def policy(out):
    chosen = Normal(out[0], out[1].exp())
    action = (out[0] + out[1].exp() * torch.randn(len(X), 2)).detach()
    gain = torch.linspace(-1, 1, len(X))
    return -(chosen.log_prob(action).sum(1) * gain).mean() - 0.01 * chosen.entropy().mean()


def soft_actor(out):
    chosen = Normal(out[0], out[1].exp())
    action = chosen.rsample()
    return (0.2 * chosen.log_prob(action).sum(1) + action.square().sum(1)).mean()


def poisson(out):
    rate = out[0].exp()
    return (rate * X[:, 2:].abs() - X[:, :2].abs() * out[0]).mean()


OTHERS = (contrast, contrast_with_penalty, policy, soft_actor, poisson)


@pytest.mark.parametrize("loss", some_on_push(OTHERS, 3))
def test_other_exponentials_are_fine(loss):
    torch.manual_seed(0)
    assert not told(Temperature(), loss)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_differences_of_numbers_that_are_not_finite_have_no_sign(number):
    finite, other = (
        SimpleNamespace(minimum=low, maximum=high)
        for low, high in ((0.3123, 1.7), (number, number))
    )
    for before, after in ((other, other), (finite, other), (other, finite)):
        assert _sign_in_difference(before, after) == 0
    assert _sign_in_difference(finite, SimpleNamespace(minimum=-0.6877, maximum=0.7)) == 1
