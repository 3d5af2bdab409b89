"""GS205 where a later stage of a training unfreezes layers and makes a new optimizer."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.watching import findings_of


class Network(nn.Module):
    """Two blocks and a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def train(model, optimizer, steps=14):
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


Adam = torch.optim.Adam


def forgotten(model):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    train(model, Adam(model.parameters()))
    model.second.requires_grad_(True)
    train(model, Adam(model.head.parameters()))


def in_the_new_optimizer(model):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    train(model, Adam(model.parameters()))
    model.second.requires_grad_(True)
    train(model, Adam(p for p in model.parameters() if p.requires_grad))


def in_the_same_optimizer(model):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = Adam(model.parameters())
    train(model, optimizer)
    model.second.requires_grad_(True)
    train(model, optimizer)


def never_frozen(model):
    train(model, Adam(model.parameters()))
    train(model, Adam(model.head.parameters()))


def in_turn(model):
    one, other = Adam(model.second.parameters()), Adam(model.head.parameters())
    for _ in range(14):
        model.second.requires_grad_(True)
        train(model, one, steps=1)
        model.second.requires_grad_(False)
        train(model, other, steps=1)


@pytest.mark.parametrize(
    ("loop", "is_found"),
    [
        (forgotten, True),
        (in_the_new_optimizer, False),
        (in_the_same_optimizer, False),
        (never_frozen, False),
        (in_turn, False),
    ],
)
def test_layers_that_a_stage_unfreezes_must_be_in_its_optimizer(loop, is_found, tmp_path):
    torch.manual_seed(0)
    found = [one for one in findings_of(lambda: loop(Network()), tmp_path) if one.rule == "GS205"]
    errors = [one for one in found if one.severity == "error"]
    assert len(errors) == is_found
    if is_found:
        assert {name.split(".")[-3] for name in errors[0].parameters} == {"second"}
        assert errors[0].location.source == "train(model, Adam(model.head.parameters()))"
