"""GS738: cosines that are logits of too small a scale."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

X = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))


class Embedding(nn.Module):
    """An encoder, a weight of each class, and a learned scale."""

    def __init__(self, classes=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.weights = nn.Parameter(torch.randn(classes, 4))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.encoder(x)


def unit(x):
    return functional.normalize(x, dim=1)


def to_classes(z, model, scale=None):
    cosines = unit(z) @ unit(model.weights).T
    logits = cosines if scale is None else cosines * scale
    return functional.cross_entropy(logits, torch.arange(len(z)) % len(model.weights))


def to_each_other(z, scale):
    return functional.cross_entropy(unit(z[:12]) @ unit(z[12:]).T * scale, torch.arange(12))


def by_hand(z, model):
    cosines = torch.mm(
        z / z.norm(dim=1, keepdim=True),
        (model.weights / model.weights.norm(dim=1, keepdim=True)).t(),
    )
    return -cosines.log_softmax(1)[torch.arange(len(z)), torch.arange(len(z)) % 12].mean()


def found_in(findings_of, loss, classes=12):
    model = Embedding(classes)
    found = findings_of(model, X, lambda output, batch: loss(output, model))
    return [one for one in found if one.rule == "GS738"]


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, m: to_classes(z, m),
        lambda z, m: to_classes(z, m, 0.5),
        lambda z, m: to_each_other(z, 0.07),
        lambda z, m: to_each_other(z, 1 / 20),
        by_hand,
    ],
    ids=["no scale", "half", "temperature", "inverse", "by hand"],
)
def test_cosines_of_a_small_scale_are_a_warning(findings_of, loss):
    (found,) = found_in(findings_of, loss)
    assert found.severity == "warning"
    assert found.location.file.endswith("test_bounded_logits.py")


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, m: to_classes(z, m, 16.0),
        lambda z, m: to_each_other(z, 1 / 0.07),
        lambda z, m: to_each_other(z, 1.0),  # a temperature of 1 is in use
        lambda z, m: to_classes(z, m, m.scale),
        lambda z, m: functional.cross_entropy(z @ m.weights.T, torch.arange(24) % 12),
        lambda z, m: functional.cross_entropy(z @ unit(m.weights).T, torch.arange(24) % 12),
    ],
    ids=["scaled", "divided", "temperature of 1", "learned", "products", "one side"],
)
def test_other_logits_are_fine(findings_of, loss):
    assert found_in(findings_of, loss) == []


@pytest.mark.parametrize(("classes", "is_found"), [(6, False), (7, True)])
def test_few_classes_can_become_likely(findings_of, classes, is_found):
    assert bool(found_in(findings_of, lambda z, m: to_classes(z, m), classes)) is is_found


def test_the_bound_is_the_loss_of_perfect_cosines(findings_of):
    (found,) = found_in(findings_of, lambda z, m: to_classes(z, m, 0.5))
    logits = torch.full((12, 12), -0.5, dtype=torch.float64)
    logits.fill_diagonal_(0.5)
    least = functional.cross_entropy(logits, torch.arange(12)).item()
    evidence = dict(found.evidence)
    assert evidence["share_of_chance"] == pytest.approx(least / math.log(12), rel=1e-5)
    assert evidence["scale"] == pytest.approx(0.5, rel=1e-5)
