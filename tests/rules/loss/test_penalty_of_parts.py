"""GS712: gradient penalties over whole examples, and over their parts."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push


def critic():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 25, 1)
    return nn.Sequential(*layers)


IMAGES = torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(1))


def penalty(of, *, summed=False):
    """The loss of a critic, with a penalty on the gradient."""

    def loss(model, batch):
        mixed = batch.clone().requires_grad_()
        scores = model(mixed)
        weights = None if summed else torch.ones_like(scores)
        outputs = scores.sum() if summed else scores
        (slope,) = torch.autograd.grad(outputs, mixed, weights, create_graph=True)
        return model(batch).mean() + of(slope)

    return loss


def said(findings_of, loss, model=None, batch=IMAGES):
    found = findings_of(model or critic(), batch, loss)
    return [one for one in found if one.rule == "GS712"]


PARTS = {
    "norm": lambda slope: (slope.norm(2, dim=1) - 1).square().mean(),
    "torch.norm": lambda slope: (1 - torch.norm(slope, dim=1)).square().mean(),
    "vector_norm": lambda slope: (torch.linalg.vector_norm(slope, dim=(1, 2)) - 1).pow(2).mean(),
    "root": lambda slope: ((slope**2).sum(1).sqrt() - 1).square().mean(),
    "one side": lambda slope: (slope.norm(2, dim=1) - 1).relu().mean(),
}

WHOLES = {
    "flattened": lambda slope: (slope.flatten(1).norm(2, dim=1) - 1).square().mean(),
    "all dimensions": lambda slope: (slope.norm(2, dim=(1, 2, 3)) - 1).square().mean(),
    "root": lambda slope: ((slope**2).sum((1, 2, 3)).sqrt() - 1).square().mean(),
    "no limit": lambda slope: slope.norm(2, dim=1).square().mean(),
    "limit of zero": lambda slope: (slope.norm(2, dim=1) - 0).square().mean(),
    "squares": lambda slope: (slope.square().sum(1) - 1).square().mean(),
}


@pytest.mark.parametrize("of", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("summed", [False, True])
def test_norm_over_a_part_is_found(findings_of, of, summed):
    (found,) = said(findings_of, penalty(of, summed=summed))
    assert found.severity == "warning"


def test_norms_are_counted_by_example(findings_of):
    (found,) = said(findings_of, penalty(PARTS["norm"]))
    assert dict(found.evidence)["norms_per_example"] == 25
    assert "5 times" in found.message


def test_norm_of_one_channel_is_found(findings_of):
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(100, 1))
    (found,) = said(findings_of, penalty(PARTS["norm"]), model, IMAGES[:, :1])
    assert dict(found.evidence)["norms_per_example"] == 25


@pytest.mark.parametrize("of", some_on_push(WHOLES.values(), 3), ids=WHOLES)
def test_norm_over_an_example_is_fine(findings_of, of):
    assert not said(findings_of, penalty(of))


def test_one_result_per_point_is_fine(findings_of):
    """A distance field has a gradient of norm 1 at every point."""
    field = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 1))
    clouds = torch.randn(4, 20, 3, generator=torch.Generator().manual_seed(1))
    near = penalty(lambda slope: (slope.norm(dim=-1) - 1).square().mean())
    assert not said(findings_of, near, field, clouds)


def test_features_of_examples_are_fine(findings_of):
    features = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    assert not said(findings_of, penalty(PARTS["norm"]), model, features)
