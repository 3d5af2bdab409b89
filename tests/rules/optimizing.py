"""A small model with an optimizer, as files and as objects."""

import dataclasses

import torch
from torch import Tensor, nn

import gradscope
from gradscope.recording.records import ParameterStat, Recording
from gradscope.rules.engine import judge

FILE = """
import copy
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(10, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

batch = (torch.randn(32, 10), torch.arange(32) % 4)
criterion = nn.CrossEntropyLoss()
model = Net()
"""
"""A target without an optimizer."""

ADAM = "optimizer = torch.optim.AdamW(model.parameters(), 1e-3)"


class Net(nn.Module):
    """Three layers and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head(x + torch.tanh(self.body(x)))


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(24, 6), torch.arange(24) % 3


def inspected(optimizer, model: nn.Module | None = None, loss=None, **chosen: object):
    """Inspect with `optimizer(model.parameters())`."""
    model = Net() if model is None else model
    loss = nn.functional.cross_entropy if loss is None else loss
    return gradscope.inspect(
        model, batch(), loss, optimizer=optimizer(model.parameters()), **chosen
    )


def with_stats(recording: Recording, **changes: object) -> Recording:
    """Return the recording with every parameter's statistics changed, by value or function."""

    def changed(stat: ParameterStat) -> ParameterStat:
        values = {k: v(stat) if callable(v) else v for k, v in changes.items()}
        return dataclasses.replace(stat, **values)

    stats = tuple(changed(stat) for stat in recording.parameter_stats)
    return dataclasses.replace(recording, parameter_stats=stats)


def with_losses(recording: Recording, *losses: float) -> Recording:
    """Return the recording with other losses in its steps."""
    steps = [
        dataclasses.replace(step, loss=loss)
        for step, loss in zip(recording.steps, losses, strict=False)
    ]
    return dataclasses.replace(recording, steps=(*steps, *recording.steps[len(steps) :]))


def verdict(recording: Recording, code: str):
    """Return the severity of a rule's only finding, None without one."""
    found = [finding for finding in judge(recording).findings if finding.rule == code]
    assert len(found) <= 1
    return found[0].severity if found else None
