"""GS204: weights that are rounded by a scale of their own."""

import pytest
import torch
from torch import nn
from torch.nn import functional

X, CLASSES = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def around(x, quantized):
    """Return what was quantized, with the gradient of what it was."""
    return x + (quantized - x).detach()


def by_largest(w):
    scale = w.abs().max() / 127
    return torch.round(w / scale) * scale


def by_row(w):
    scale = w.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 7
    return torch.clamp(torch.round(w / scale), -8, 7) * scale


def by_mean(w):
    return torch.sign(w) * w.abs().mean()


class Quantized(nn.Module):
    """A layer whose weight goes through a function, before another layer."""

    def __init__(self, function):
        super().__init__()
        self.inner, self.last, self.function = nn.Linear(8, 16), nn.Linear(16, 4), function

    def forward(self, x):
        h = functional.linear(x, self.function(self.inner.weight), self.inner.bias)
        return self.last(functional.gelu(h))


def found_in(findings_of, function):
    model = Quantized(function)
    found = findings_of(model, (X, CLASSES), functional.cross_entropy)
    return [one for one in found if one.rule == "GS204"], model


@pytest.mark.parametrize("function", [by_largest, by_row, by_mean])
def test_weights_that_learn_through_their_scale_alone_are_an_error(findings_of, function):
    (found,), _ = found_in(findings_of, function)
    assert found.severity == "error"
    assert found.parameters == ("inner.weight",)
    assert any(name in found.location.source for name in ("round", "sign"))


def test_the_gradient_of_the_largest_weight_alone_is_not_zero():
    weight = torch.randn(16, 8, generator=torch.Generator().manual_seed(2), requires_grad=True)
    by_largest(weight).sin().sum().backward()
    assert weight.grad.count_nonzero() == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda w: around(w, by_largest(w)),
        lambda w: around(w, torch.sign(w)) * w.abs().mean(),
        lambda w: w - w.floor(),
        lambda w: w.sign() * w.abs().sqrt() / (1 + w.abs().max()),
        lambda w: w / w.abs().max() + by_largest(w),  # a path beside the rounding
        lambda w: by_largest(w) + w.mean(),  # the mean is more than a scale
    ],
    ids=["estimator", "estimated sign", "fraction", "root", "residual", "mean"],
)
def test_weights_with_a_path_around_the_rounding_are_fine(findings_of, function):
    assert found_in(findings_of, function)[0] == []
