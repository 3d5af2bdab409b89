"""GS737: noise that a model is to predict, and other random targets."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

POINTS = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))


def noisy(x, noise=None):
    noise = torch.randn_like(x) if noise is None else noise
    return 0.8 * x + 0.6 * noise


def compared(model, x):
    noise = torch.randn_like(x)
    return functional.mse_loss(model(noisy(x)), noise)


def subtracted(model, x):
    noise = torch.randn_like(x)
    given = x * 0.8 + torch.randn_like(x) * 0.6
    return (model(given) - noise).square().mean()


def train(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(6):
        optimizer.zero_grad()
        loss(model, POINTS).backward()
        optimizer.step()


def told(loss, tmp_path):
    found = findings_of(lambda: train(loss), tmp_path)
    return [one for one in found if one.rule == "GS737"]


@pytest.mark.parametrize("loss", some_on_push([compared, subtracted], 1))
def test_noise_that_the_input_does_not_hold_is_a_warning(loss, tmp_path):
    (found,) = told(loss, tmp_path)
    assert found.severity == "warning"
    assert "randn_like" in found.related[0].source or "noise" in found.related[0].source


def added(model, x):
    noise = torch.randn_like(x)
    return functional.mse_loss(model(noisy(x, noise)), noise)


def velocity(model, x):
    noise = torch.randn_like(x)
    return functional.mse_loss(model(noisy(x, noise)), 0.8 * noise - 0.6 * x)


def of_noise_alone(model, x):
    return functional.mse_loss(model(x), torch.randn_like(x))


def augmented(model, x):
    wanted = torch.randn(32, 2)
    return functional.mse_loss(model(noisy(x)), wanted)


def reparameterised(model, x):
    out = model(noisy(x))
    return functional.mse_loss(out + 0.1 * torch.randn_like(out), x)


HEALTHY = [added, velocity, of_noise_alone, augmented, reparameterised]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, {0, 3}))
def test_noise_in_the_input_and_other_targets_are_fine(loss, tmp_path):
    assert not told(loss, tmp_path)
