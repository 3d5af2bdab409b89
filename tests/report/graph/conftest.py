"""Real models, inspected once; the graph is what autograd built."""

import pytest
import torch
from torch import nn

from gradscope.session.api import inspect


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.head.bias.requires_grad_(False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).view(-1).sum()


class Named(nn.Module):
    """A model whose parts have names of the user's choice."""

    def __init__(self, name):
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(4, 4)})

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return x.sum()


def report_of(model):
    return inspect(model, torch.linspace(-1, 1, 8).view(2, 4), probe_steps=0)


@pytest.fixture(scope="session")
def report():
    return report_of(Model())


@pytest.fixture(scope="session")
def named_report():
    return lambda name: report_of(Named(name))


@pytest.fixture(scope="session")
def broken_report():
    def compute_loss(model, batch):
        return model(batch).sum()

    return inspect(nn.Linear(2, 1), torch.full((1, 2), torch.nan), compute_loss, probe_steps=0)
