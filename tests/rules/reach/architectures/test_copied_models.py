"""GS201: what `copy.deepcopy` cuts off, and what the copy of a learning model does not."""

import copy

import torch
from torch import nn
from torch.nn import functional

from tests.rules.inspecting import only

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Distilled(nn.Module):
    """Learns the features of a copy of itself that the first call makes. The head is not used."""

    def __init__(self):
        super().__init__()
        self.net, self.out = Backbone(), nn.Linear(16, 6)
        self.teachers = {}

    def features(self, net, x):
        net(x)
        return self.out(net.body(x))

    def forward(self, x):
        with torch.no_grad():
            if "net" not in self.teachers:
                self.teachers["net"] = copy.deepcopy(self.net).requires_grad_(False)
            target = self.features(self.teachers["net"], x + 0.1)
        return functional.mse_loss(self.features(self.net, x), target)


class Copied(nn.Module):
    """Runs a copy, so that the model itself does not learn."""

    def __init__(self):
        super().__init__()
        self.net, self.scale = Backbone(), nn.Parameter(torch.ones(3))

    def forward(self, x):
        copied = copy.deepcopy(self.net)
        return (copied(x) * self.scale).square().mean()


def test_a_teacher_made_in_the_forward_cuts_nothing_off(findings_of):
    torch.manual_seed(0)
    found = findings_of(Distilled(), X)
    assert "GS201" not in {one.rule for one in found}
    assert only(found, "GS203").modules == ("net.head",)


def test_a_copy_that_runs_in_place_of_the_model_is_named(findings_of):
    torch.manual_seed(0)
    found = only(findings_of(Copied(), X), "GS201")
    assert "deepcopy() cuts it off" in found.message
    assert found.location.source == "copied = copy.deepcopy(self.net)"
    assert "functional_call" in found.remedy
    assert found.parameters == tuple(f"net.{name}" for name, _ in Backbone().named_parameters())
