"""Finds the origin of NaN on a GPU without synchronization."""

import pytest
import torch
from torch import nn

import gradscope

BROKEN = 5


class Odds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, shift: float) -> torch.Tensor:
        share = self.head(self.layer(x).tanh()).sigmoid()
        return torch.log(share - shift).mean()  # the operation


def train(device: torch.device, steps: int) -> None:
    torch.manual_seed(0)
    model = Odds().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, device=device), 2.0 if step >= BROKEN else -1.0)
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"budget": None}], ids=str)
def test_the_step_is_named(options, device):
    with gradscope.watch(**options) as watch:
        train(device, 12)
    broken = [one for one in watch.findings if one.rule in ("GS103", "GS104")]
    assert broken
    assert min(one.step for one in broken) == BROKEN


def test_a_step_that_is_captured_names_the_operation(device):
    with gradscope.watch(budget=None, tensor_every=1) as watch:
        train(device, 12)
    sources = [one.location.source for one in watch.findings if one.rule == "GS104"]
    assert any("# the operation" in source for source in sources)
