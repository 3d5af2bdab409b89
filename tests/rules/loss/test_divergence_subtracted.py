"""GS727: divergences with the wrong sign, and those that a loss adds."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(3)) + 0.5


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_var, self.decoder = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(3, 6)

    def forward(self, x):
        mean, log_var = self.mean(x), self.log_var(x)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decoder(code), mean, log_var


def told(divergence, sign, reconstruction=functional.mse_loss, **optimizer):
    def loss(out):
        error, beside = reconstruction(out[0], X), divergence(*out[1:])
        return error + 0.3 * beside if sign > 0 else error - 0.3 * beside

    torch.manual_seed(0)
    model = Autoencoder()
    made = torch.optim.Adam(model.parameters(), **optimizer)
    found = gradscope.inspect(model, X, loss, optimizer=made).findings
    return [one for one in found if one.rule == "GS727"]


def of_sum(mean, log_var):
    return -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp(), dim=1).mean()


def of_terms(mean, log_var):
    return 0.5 * (mean * mean + torch.exp(log_var) - log_var - 1).sum(1).mean()


def of_distributions(mean, log_var):
    prior = Normal(torch.zeros(3), torch.ones(3))
    return kl_divergence(Normal(mean, torch.exp(0.5 * log_var)), prior).sum(1).mean()


def of_two_scales(mean, log_var):
    of_prior = torch.zeros(3)
    square = (log_var.exp() + (mean - of_prior) ** 2) / (2 * of_prior.exp())
    return (of_prior / 2 - log_var / 2 + square - 0.5).sum(1).mean()


DIVERGENCES = (of_sum, of_terms, of_distributions, of_two_scales)


@pytest.mark.parametrize("divergence", some_on_push(DIVERGENCES, 2))
@pytest.mark.parametrize("reconstruction", [functional.mse_loss, functional.l1_loss])
def test_a_divergence_that_is_subtracted_is_an_error(divergence, reconstruction):
    (found,) = told(divergence, -1, reconstruction)
    assert found.severity == "error"


@pytest.mark.parametrize("divergence", some_on_push(DIVERGENCES, 2))
def test_a_divergence_that_is_added_is_fine(divergence):
    assert not told(divergence, 1)


@pytest.mark.parametrize("divergence", [of_sum, of_two_scales])
def test_it_is_found_at_the_minus(divergence):
    (found,) = told(divergence, -1)
    assert found.location.source.endswith("else error - 0.3 * beside")


def test_own_signs_are_found_at_the_divergence():
    def of_wrong_signs(mean, log_var):
        return 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1).mean()

    (found,) = told(of_wrong_signs, 1)
    assert "log_var.exp()" in found.location.source


def test_an_optimizer_that_maximises_is_fine():
    assert not told(of_sum, -1, maximize=True)


def entropy(_, log_var):
    return 0.5 * log_var.sum(1).mean()


def spread(mean, log_var):
    return mean.square().mean() + log_var.exp().mean()


def distance(mean, _):
    return mean.square().mean()


@pytest.mark.parametrize("term", [entropy, spread, distance])
def test_other_terms_that_are_subtracted_are_left_alone(term):
    assert not told(term, -1)
