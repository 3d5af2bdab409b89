"""GS211 of losses that only draw two outputs of one network to each other, and of others."""

import pytest

from tests.nightly import some_on_push

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6))
        self.other = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 6))
        self.predictor = nn.Linear(6, 6)
        self.classifier = nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, x, y):
        {code}
        {unused}

def build_model():
    return Twin()

def build_batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 8, generator=generator), torch.randn(12, 8, generator=generator)

def loss_fn(output, batch):
    return output
"""
CODES = "z, t = self.encoder(x), self.encoder(y); p = self.predictor(z)"


def said(inspect_file, loss, code=CODES):
    lines = [f"{code}", f"return {loss}  # <-"]
    text = TEXT.format(code="\n        ".join(lines), unused="")
    found = [one for one in inspect_file(text).findings if one.rule == "GS211"]
    line = 1 + text[: text.index("# <-")].count("\n")
    assert all(one.location.line == line for one in found)
    return [one.severity for one in found]


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            "-F.cosine_similarity(p, t, dim=-1).mean()",
            "(1 - F.cosine_similarity(p, t)).mean()",
            "2 - 2 * F.cosine_similarity(p, t).mean()",
            "F.mse_loss(p, t)",
            "3 * F.smooth_l1_loss(p, t, reduction='none').sum(1).mean()",
            "F.mse_loss(p, t) / 2 - F.cosine_similarity(z, t).mean()",
            "-0.5 * (F.cosine_similarity(p, t).mean() + F.cosine_similarity(t, z).mean())",
            "F.cosine_similarity(p, t).mean() / -2",
        ],
        {0, 3},
    ),
)
def test_outputs_that_are_only_drawn_together_are_an_error(inspect_file, loss):
    assert said(inspect_file, loss) == ["error"]


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            "-F.cosine_similarity(p, t.detach(), dim=-1).mean()",
            "F.mse_loss(p, t.detach())",
            "F.cosine_similarity(p, t).mean()",
            "0.5 * (F.cosine_similarity(p, t).mean() + F.cosine_similarity(t, z).mean())",
            "F.mse_loss(p, t) / -2",
            "F.mse_loss(p, t) + F.cross_entropy(self.classifier(z), torch.arange(12) % 3)",
            "F.mse_loss(p, t) + F.relu(1 - z.std(0)).mean() + F.relu(1 - t.std(0)).mean()",
            "F.mse_loss(p, t) + (z.T @ z / 12 - torch.eye(6)).square().mean()",
            "F.cross_entropy(F.normalize(z) @ F.normalize(t).T / 0.1, torch.arange(12))",
            "F.relu(0.5 + F.mse_loss(p, t) - F.mse_loss(p, t.roll(1, 0)))",
            "F.mse_loss(p, t) - F.mse_loss(z, t.roll(1, 0))",
            "F.mse_loss(self.norm(z), self.norm(t))",
            "F.mse_loss(torch.linalg.qr(z).Q, torch.linalg.qr(t).Q)",
            "F.mse_loss((z - z.mean(0)) / z.std(0), (t - t.mean(0)) / t.std(0))",
            "F.mse_loss(z, self.other(x))",
            "F.mse_loss(z, 2 * t + 1)",
            "F.mse_loss(torch.stack([(a - b).norm() for a, b in zip(z, t)]), torch.ones(12))",
        ],
        {0, 5, 10},
    ),
    ids=[
        "stop-gradient",
        "detached target",
        "repulsion",
        "halved repulsion",
        "distance with a negative factor",
        "classified too",
        "variance kept",
        "covariance kept",
        "contrastive",
        "triplet",
        "negatives",
        "batch norm",
        "whitened",
        "standardised",
        "two networks",
        "equivariance",
        "distances of data",
    ],
)
def test_losses_that_a_constant_does_not_minimise_are_right(inspect_file, loss):
    assert not said(inspect_file, loss)


def test_residual_of_a_differential_equation_is_right(inspect_file):
    code = (
        "x = x.clone().requires_grad_(True); u = 1 + x[:, :1] * self.encoder(x); "
        "d = torch.autograd.grad(u.sum(), x, create_graph=True)[0][:, :6]"
    )
    assert not said(inspect_file, "F.mse_loss(d, u)", code)
