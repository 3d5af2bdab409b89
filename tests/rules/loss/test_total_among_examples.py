"""GS729: totals over the batch among values for each example, and sums that are meant."""

import pytest
import torch
from torch import nn

import gradscope

ROWS = 12
X = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """Returns `[rows, 4]`, and its own weight for penalties."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.weights = nn.Linear(6, 4), nn.Parameter(torch.ones(ROWS, 3))

    def forward(self, x):
        return self.layer(x), self.weights


def told(loss):
    found = gradscope.inspect(Model(), X, lambda out: loss(*out)).findings
    return [one for one in found if one.rule == "GS729"]


def total(output, _):
    return (output.square().sum(1) + 0.5 * output.exp().sum()).mean()


def subtracted(output, _):
    examples = output.square().sum(1, keepdim=True)
    return -(output.sum() - examples).mean()


def over_both_dimensions(output, _):
    return (output.square().mean(1) + output.exp().sum(dim=(0, 1)) / 7).abs().mean()


@pytest.mark.parametrize("loss", [total, subtracted, over_both_dimensions])
def test_a_total_that_each_example_gets_is_a_warning(loss):
    (found,) = told(loss)
    assert found.severity == "warning"
    assert dict(found.evidence)["examples"] == ROWS
    assert set(found.parameters) == {"layer.weight", "layer.bias"}


def test_the_weight_is_the_number_of_examples():
    """The gradient of the total is as many times that of the mean over the examples."""
    model = Model()

    def gradient(loss):
        return torch.autograd.grad(loss, model.layer.weight)[0]

    output = model(X)[0]
    whole = gradient((output.square().sum(1).detach() + output.exp().sum()).mean())
    output = model(X)[0]
    torch.testing.assert_close(whole, ROWS * gradient(output.exp().sum(1).mean()))


def over_features(output, _):
    return (output.square().sum(1) + output.exp().sum(1)).mean()


def mean_of_the_batch(output, _):
    return (output.square().sum(1) + output.exp().sum(1).mean()).mean()


def penalty(output, weights):
    return (output.square().sum(1) + 0.1 * weights.square().sum()).mean()


def two_totals(output, _):
    return output.square().sum() + output.exp().sum()


def mean_and_total(output, _):
    return output.square().mean() + output.exp().sum()


def inside_of_a_model(output, _):
    return (output.square().sum(1) + output.exp().sum()).softmax(0).square().sum()


def of_one_example(output, _):
    return (output.square().sum(1) + output[0].exp().sum()).mean()


FINE = [
    over_features,
    mean_of_the_batch,
    penalty,
    two_totals,
    mean_and_total,
    inside_of_a_model,
    of_one_example,
]


@pytest.mark.parametrize("loss", FINE)
def test_other_sums_are_fine(loss):
    assert not told(loss)
