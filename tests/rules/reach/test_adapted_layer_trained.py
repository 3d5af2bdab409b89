"""GS235: layers that are trained along with their low-rank adapters."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

X = torch.randn(32, 12, generator=torch.Generator().manual_seed(1))
Y = X[:, :8].argmax(1)


class LoRALinear(nn.Module):
    def __init__(self, layer, rank=3):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


class Adapted(nn.Linear):
    """Has its adapter beside its own weight."""

    def __init__(self, inputs, outputs, rank=3):
        super().__init__(inputs, outputs)
        self.lora_a, self.lora_b = nn.Linear(inputs, rank), nn.Linear(rank, outputs)

    def forward(self, x):
        return super().forward(x) + self.lora_b(self.lora_a(x))


class Bypass(LoRALinear):
    """A layer with a narrow way beside it, which is no adapter."""


def wrapped():
    return nn.Sequential(LoRALinear(nn.Linear(12, 10)), nn.ReLU(), LoRALinear(nn.Linear(10, 8)))


def beside():
    return nn.Sequential(Adapted(12, 10), nn.ReLU(), nn.Linear(10, 8))


def bypassed():
    return nn.Sequential(Bypass(nn.Linear(12, 10)), nn.ReLU(), nn.Linear(10, 8))


def with_a_new_head():
    model = nn.Sequential(LoRALinear(nn.Linear(12, 10)), nn.ReLU(), nn.Linear(10, 8))
    model[0].layer.requires_grad_(False)
    return model


def with_biases():
    model = wrapped()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("layer.weight" not in name)
    return model


def of_full_rank():
    return nn.Sequential(LoRALinear(nn.Linear(12, 10), rank=10), nn.ReLU(), nn.Linear(10, 8))


def everything(model):
    return model.parameters()


def adapters(model):
    return [one for name, one in model.named_parameters() if "layer" not in name]


CASES = [
    (wrapped, everything, 2),
    (beside, everything, 1),
    (wrapped, adapters, 0),
    (bypassed, everything, 0),
    (with_a_new_head, everything, 0),
    (with_biases, everything, 0),
    (of_full_rank, everything, 0),
]


@pytest.mark.parametrize(("build", "held", "layers"), some_on_push(CASES, 2))
def test_a_layer_that_is_trained_with_its_adapter_is_a_warning(tmp_path, build, held, layers):
    def train():
        torch.manual_seed(0)
        model = build()
        adam = torch.optim.Adam(held(model), lr=1e-3)
        for _ in range(6):
            adam.zero_grad()
            functional.cross_entropy(model(X), Y).backward()
            adam.step()

    found = [one for one in findings_of(train, tmp_path) if one.rule == "GS235"]
    assert [(one.severity, len(one.parameters)) for one in found] == [("warning", layers)] * bool(
        layers
    )
    assert all(one.location.source.startswith("adam = ") for one in found)


def test_without_an_optimizer_it_is_not_judged(findings_of):
    assert not [
        one
        for one in findings_of(wrapped(), (X, Y), functional.cross_entropy)
        if one.rule == "GS235"
    ]
