"""GS114: infinities that are masked, that arrive, and that never were."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
Y = torch.rand(20, 1, generator=torch.Generator().manual_seed(2))


def found(findings):
    rules = {one.rule: one.severity for one in findings}
    return {code: rules[code] for code in ("GS103", "GS114") if code in rules}


class Behind(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer, self.head, self.function = nn.Linear(6, 12), nn.Linear(12, 1), function

    def forward(self, x):
        return self.head(self.function(self.layer(x)))


MASKED = [
    lambda x: x.relu().sqrt(),
    lambda x: x.clamp(min=0).pow(0.5),
    lambda x: x.relu().add(0).pow(0.7),
]


@pytest.mark.parametrize("function", some_on_push(MASKED, 2), ids=["sqrt", "clamp", "pow"])
def test_an_infinity_that_is_masked_is_a_note(findings_of, function):
    findings = findings_of(Behind(function), (X, Y), functional.mse_loss)
    assert found(findings) == {"GS114": "note"}


@pytest.mark.parametrize(
    "function",
    some_on_push(
        [
            lambda x: (x.relu() + 1e-6).sqrt(),
            lambda x: x.sigmoid().log(),
            lambda x: torch.where(x > 0, x.clamp(min=1e-3), 1.0).log(),
            lambda x: x.masked_fill(x < 0, float("-inf")).softmax(1),
        ],
        {0, 2},
    ),
    ids=["offset", "sigmoid", "safe where", "attention mask"],
)
def test_finite_derivatives_are_fine(findings_of, function):
    assert not found(findings_of(Behind(function), (X, Y), functional.mse_loss))


def test_an_infinity_that_arrives_is_near_but_another_mistake(findings_of):
    model = Behind(lambda x: (x * (x > 0)).sqrt())
    assert found(findings_of(model, (X, Y), functional.mse_loss)) == {"GS103": "error"}
