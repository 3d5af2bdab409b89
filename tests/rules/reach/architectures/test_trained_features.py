"""GS211: features of a perceptual loss that the optimizer trains, and other pairs of outputs."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def told(tmp_path, loss, *, trained):
    """Train a network whose output is compared with data by their features."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
    features = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12))
    features.requires_grad_(trained is not None)
    held = itertools.chain(network.parameters(), features.parameters() if trained else ())
    optimizer = torch.optim.Adam(held, lr=1e-3)

    def train():
        for _ in range(6):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss(network, features, x, x.flip(1)).backward()
            optimizer.step()

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS211"]


def perceptual(network, features, x, y):
    out = network(x)
    return functional.mse_loss(out, y) + 0.1 * functional.l1_loss(features(out), features(y))


def in_layers(network, features, x, y):
    out = network(x)
    first, second = features[:2](out), features[:2](y)
    deep = functional.mse_loss(features[2:](first), features[2:](second))
    return functional.mse_loss(out, y) + functional.mse_loss(first, second) + deep


@pytest.mark.parametrize("loss", some_on_push([perceptual, in_layers], 1))
def test_features_that_only_learn_to_agree_are_a_warning(loss, tmp_path):
    found = told(tmp_path, loss, trained=True)
    assert found
    assert all(one.severity == "warning" for one in found)
    assert "only learn to make two outputs" in found[0].message


@pytest.mark.parametrize("trained", [None, False])
def test_features_that_are_not_stepped_are_fine(trained, tmp_path):
    assert not told(tmp_path, perceptual, trained=trained)


def consistent(network, features, x, y):
    one, other = features(network(x)), features(x + 0.1)
    return functional.mse_loss(one, other) + functional.mse_loss(features(x)[:, :6], y)


def held_apart(network, features, x, y):
    one, other = features(network(x)), features(y)
    spread = functional.relu(1 - other.var(0).sqrt()).mean()
    return functional.mse_loss(one, other) + spread


@pytest.mark.parametrize("loss", some_on_push([consistent, held_apart], 2))
def test_features_that_another_term_trains_are_fine(loss, tmp_path):
    assert not told(tmp_path, loss, trained=True)
