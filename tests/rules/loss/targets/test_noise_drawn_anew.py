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


def drawn_in_shape(model, x):
    noise = torch.randn(x.shape)
    given = noisy(x, torch.randn(x.size(), device=x.device))
    return (model(given) - noise).abs().mean()


def flowing(model, x):
    time = torch.rand(len(x), 1)
    target = x - torch.randn_like(x)
    given = (1 - time) * torch.randn_like(x) + time * x
    return functional.mse_loss(model(given), target)


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


SICK = [compared, subtracted, drawn_in_shape, flowing]


@pytest.mark.parametrize("loss", some_on_push(SICK, {1, 3}))
def test_noise_that_the_input_does_not_hold_is_a_warning(loss, tmp_path):
    (found,) = told(loss, tmp_path)
    assert found.severity == "warning"
    assert "randn" in found.related[0].source or "noise" in found.related[0].source


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


def noisy_on_both_sides(model, x):
    return functional.mse_loss(model(noisy(x)), x + torch.randn_like(x))


def flowing_from_its_noise(model, x):
    noise, time = torch.randn_like(x), torch.rand(len(x), 1)
    return functional.mse_loss(model((1 - time) * noise + time * x), x - noise)


def stood_in(model, x):
    wanted = torch.randn(*x.shape)
    return functional.mse_loss(model(noisy(x)), wanted)


def reparameterised(model, x):
    out = model(noisy(x))
    return functional.mse_loss(out + 0.1 * torch.randn_like(out), x)


HEALTHY = [
    added,
    velocity,
    of_noise_alone,
    augmented,
    noisy_on_both_sides,
    flowing_from_its_noise,
    stood_in,
    reparameterised,
]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, {0, 3, 4, 5}))
def test_noise_in_the_input_and_other_targets_are_fine(loss, tmp_path):
    assert not told(loss, tmp_path)
