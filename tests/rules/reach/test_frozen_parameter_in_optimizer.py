import pytest
import torch
from torch import nn

from tests.rules.optimizing import Net, inspected


def found(model, optimizer=torch.optim.AdamW):
    return [f for f in inspected(optimizer, model).findings if f.rule == "GS208"]


def test_frozen_layer_is_one_note():
    model = Net()
    model.embed.requires_grad_(False)
    (finding,) = found(model)
    assert finding.severity == "note"
    assert finding.parameters == ("embed.weight", "embed.bias")
    assert "2 of 6 parameters" in finding.message and finding.message.endswith("embed")


def test_frozen_and_filtered_is_nothing():
    model = Net()
    model.embed.requires_grad_(False)
    assert found(model, lambda ps: torch.optim.SGD([p for p in ps if p.requires_grad], 0.1)) == []


def test_nothing_frozen_is_nothing():
    assert found(Net()) == []


@pytest.mark.parametrize("kind", [nn.Embedding, nn.Linear])
def test_fixed_table_of_positions_is_left_out(kind):
    class Positioned(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = kind(4, 6)
            self.table.requires_grad_(False)

        def forward(self, x):
            return super().forward(x + self.table.weight.sum())

    assert bool(found(Positioned())) == (kind is nn.Linear)


def test_optimizer_of_a_network_whose_turn_it_is_not_is_left_alone():
    model = Net()
    model.embed.requires_grad_(False)
    optimizer = torch.optim.SGD(model.embed.parameters(), 0.1)
    assert found(model, lambda _: optimizer) == []
