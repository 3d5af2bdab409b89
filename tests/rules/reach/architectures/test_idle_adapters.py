"""GS214: adapters that are frozen together with their model, and frozen parts that are no such."""

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

MODULES = """
import copy
import torch
from torch import nn
from torch.nn import functional


class Modules(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.{init}_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Weights(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.empty(base.out_features, rank))
        nn.init.{init}_(self.lora_B)

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
{freeze_before}
encoder[2] = {kind}(encoder[2])
{freeze_after}
head = nn.Linear(8, 3)
parts = [encoder, head]
trained = [p for part in parts for p in part.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1)
x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
for step in range(6):
    {at_start}
    loss = functional.cross_entropy(head(encoder(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FREEZE = "for p in encoder.parameters(): p.requires_grad = False"
PARTS = {
    "init": "zeros",
    "kind": "Modules",
    "freeze_before": "",
    "freeze_after": FREEZE,
    "at_start": "pass",
}


def told(tmp_path, **parts):
    script = tmp_path / "train.py"
    script.write_text(MODULES.format(**PARTS | parts))
    return [one for one in findings_of_script(script, tmp_path) if one.rule == "GS214"]


@pytest.mark.parametrize("kind", ["Modules", "Weights"])
def test_adapters_that_are_frozen_with_their_model_are_a_warning(tmp_path, kind):
    (found,) = told(tmp_path, kind=kind)
    assert found.severity == "warning"
    assert found.location.source == FREEZE
    assert len(found.parameters) == 2


FINE = {
    "frozen before": {"freeze_before": FREEZE, "freeze_after": ""},
    "not zero": {"init": "ones"},
    "a full rank": {"kind": "(lambda base: Modules(base, rank=8))"},
    "unfrozen later": {
        "at_start": "encoder[2].up.requires_grad_(step > 1); "
        "step == 1 and optimizer.add_param_group({'params': [encoder[2].up.weight]})"
    },
    "a copy of a model that learns": {
        "freeze_before": "",
        "freeze_after": "other = copy.deepcopy(encoder)\n" + FREEZE,
        "at_start": "functional.mse_loss(other(x), encoder(x)).backward()",
    },
    "a frozen residual layer": {
        "kind": "",
        "freeze_after": "nn.init.zeros_(encoder[2].weight)\n" + FREEZE,
    },
}


@pytest.mark.parametrize("name", some_on_push(FINE, 3))
def test_other_frozen_parts_are_fine(tmp_path, name):
    assert not told(tmp_path, **FINE[name])
