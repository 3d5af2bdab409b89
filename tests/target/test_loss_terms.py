"""Tests which scalars besides a loss are its named terms."""

import torch
from torch import nn

from gradscope.target.loading import target_from_objects

X = torch.randn(4, 3)


class Plain(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.layer, self.output = nn.Linear(3, 2), output

    def forward(self, x):
        return self.output(self.layer(x))


def names(output, loss=None):
    terms = target_from_objects(Plain(output), X, loss).forward().terms
    assert all(tensor.requires_grad for _, tensor in terms)
    return [name for name, _ in terms]


def test_scalars_of_a_mapping_with_a_loss_are_terms():
    def parts(y):
        a, b = y.square().mean(), y.abs().mean()
        return {"loss": a + b, "a": a, "b": b, "a_logged": a.detach(), "logits": y}

    assert names(parts) == ["a", "b"]
    assert names(lambda y: y, parts) == ["a", "b"]


def test_losses_that_are_summed_are_terms():
    assert names(lambda y: {"loss_a": y.square().mean(), "loss_b": y.abs().mean()}) == [
        "loss_a",
        "loss_b",
    ]


def test_a_plain_loss_has_no_terms():
    assert names(lambda y: y.square().mean()) == []
    assert names(lambda y: (y, y.square().mean())) == []
    assert names(lambda y: y, lambda output: output.mean()) == []
