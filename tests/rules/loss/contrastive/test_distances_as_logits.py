"""GS735: distances that are logits without a minus."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

X = torch.randn(15, 6, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(3).repeat_interleave(5)


class Embedding(nn.Module):
    """An encoder, and a centre of each class."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.centres = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return self.encoder(x)


def to_prototypes(z):
    prototypes = torch.stack([z[one == CLASSES][:2].mean(0) for one in range(3)])
    return (z[:, None] - prototypes[None]).pow(2).sum(2)


def to_centres(z, centres):
    return torch.cdist(z, centres)


def picked(logits):
    return -logits.log_softmax(1).gather(1, CLASSES[:, None]).squeeze(1).mean()


def entropy(logits):
    return functional.cross_entropy(logits, CLASSES)


SICK = {
    "prototypes": lambda z, c: picked(to_prototypes(z)),
    "cross-entropy": lambda z, c: entropy(to_prototypes(z) / 0.5),
    "centres": lambda z, c: entropy(to_centres(z, c)),
    "norm": lambda z, c: entropy((z[:, None] - c).norm(dim=-1)),
    "root": lambda z, c: entropy(((z[:, None] - c) ** 2).mean(-1).sqrt()),
}

HEALTHY = {
    "prototypes": lambda z, c: picked(-to_prototypes(z)),
    "cross-entropy": lambda z, c: entropy(to_prototypes(z) / -0.5),
    "centres": lambda z, c: entropy(-to_centres(z, c)),
    "margin": lambda z, c: entropy(2 - to_centres(z, c)),
    "student": lambda z, c: entropy(-torch.log1p(to_centres(z, c))),
    "softmin": lambda z, c: functional.nll_loss(
        functional.softmin(to_centres(z, c), dim=1).log(), CLASSES
    ),
    "product": lambda z, c: entropy((z @ c.T).relu()),
    "features": lambda z, c: entropy((z - 0.1).pow(2) @ c.T.abs()),
}


@pytest.mark.parametrize("name", some_on_push(SICK, {0, 1, 2, 3}))
def test_distances_without_a_minus_are_found(findings_of, name):
    def loss(model, batch):
        return SICK[name](model(batch), model.centres)

    found = only(findings_of(Embedding(), X, loss), "GS735")
    assert found.severity == "error"
    assert found.location.file.endswith("test_distances_as_logits.py")


@pytest.mark.parametrize("name", some_on_push(HEALTHY, {0, 1, 3, 5, 6}))
def test_distances_with_a_minus_are_fine(findings_of, name):
    def loss(model, batch):
        return HEALTHY[name](model(batch), model.centres)

    found = findings_of(Embedding(), X, loss)
    assert not [one for one in found if one.rule == "GS735"]
