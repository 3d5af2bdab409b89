"""GS731: scales that a ReLU makes zero."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
Y = X.sum(1, keepdim=True)


class Normal(nn.Module):
    """Predicts a mean and what becomes the variance."""

    def __init__(self, positive):
        super().__init__()
        torch.manual_seed(2)
        self.body, self.heads = nn.Linear(5, 32), nn.Linear(32, 2)
        self.positive = positive

    def forward(self, x):
        mean, scale = self.heads(torch.tanh(self.body(x))).chunk(2, dim=1)
        return mean, self.positive(scale)


def likelihood(output, target):
    return functional.gaussian_nll_loss(output[0], target, output[1])


def by_hand(output, target):
    mean, variance = output
    return (
        0.5 * torch.log(variance + 1e-6) + 0.5 * (target - mean) ** 2 / (variance + 1e-6)
    ).mean()


def of_deviations(output, target):
    mean, variance = output
    return ((target - mean) / variance.clamp(min=1e-4).sqrt()).square().mean()


def rates(output, target):
    mean, rate = output
    return mean.square().mean() + (rate - target.abs() * torch.log(rate + 1e-8)).mean()


def found(findings_of, model, loss):
    return [one for one in findings_of(model, (X, Y), loss, probe_steps=1) if one.rule == "GS731"]


LOSSES = [likelihood, by_hand, of_deviations, rates]


@pytest.mark.parametrize("loss", some_on_push(LOSSES, 2))
def test_scale_that_a_relu_makes_zero_is_a_warning_at_the_relu(findings_of, loss):
    (one,) = found(findings_of, Normal(torch.relu), loss)
    zeros = int((Normal(torch.relu)(X)[1] == 0).sum())
    assert (one.severity, one.count) == ("warning", zeros)
    assert one.location.source == "return mean, self.positive(scale)"


def large(scale):
    return torch.relu(scale + 5)


@pytest.mark.parametrize("positive", [functional.softplus, torch.exp, large])
def test_positive_scales_are_fine(findings_of, positive):
    for loss in some_on_push(LOSSES, 1):
        assert not found(findings_of, Normal(positive), loss)


def log_of_one_and_more(output, target):
    """A saturating activation, as models for sparse retrieval have it."""
    return torch.log(1 + output[1]).square().mean() + functional.mse_loss(output[0], target)


def divided_by_one_and_more(output, target):
    return functional.mse_loss(output[0] / (1 + output[1]), target)


def divided_by_a_sum(output, target):
    weights = output[1] / (output[1].sum() + 1e-6)
    return (weights * (output[0] - target).square()).sum()


@pytest.mark.parametrize("loss", [log_of_one_and_more, divided_by_one_and_more, divided_by_a_sum])
def test_zeros_that_are_no_scale_are_fine(findings_of, loss):
    assert not found(findings_of, Normal(torch.relu), loss)
