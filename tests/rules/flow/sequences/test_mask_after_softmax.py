"""GS122: weights of attention that are masked after their softmax."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(1))
CAUSAL = torch.ones(5, 5).tril()
HIDDEN = CAUSAL == 0


class Dropout(nn.Dropout):
    """Dropout that drops the three largest weights, which holds most of the norm."""

    def forward(self, weights):
        kept = weights.detach() < weights.detach().flatten().topk(3).values[-1]
        return weights * (kept.float() / 0.9)


class Attention(nn.Module):
    """Attention of one layer, whose weights are computed and used as told."""

    def __init__(self, use):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.value, self.score = nn.Linear(8, 8), nn.Linear(8, 1)
        self.gate, self.drop = nn.Linear(8, 5), nn.Dropout(0.4)
        self.largest = Dropout(0.1)
        self.use = use

    def forward(self, x):
        return x + self.use(self, x, self.value(x))


def scores(model, x):
    return model.query(x) @ model.key(x).transpose(1, 2) / 8**0.5


def multiplied(model, x, value):
    return (scores(model, x).softmax(-1) * CAUSAL) @ value


def filled_and_dropped(model, x, value):
    return model.drop(scores(model, x).softmax(-1).masked_fill(HIDDEN, 0)) @ value


def of_heads(model, x, value):
    query, key, value = (
        one.unflatten(-1, (2, 4)).transpose(1, 2) for one in (model.query(x), model.key(x), value)
    )
    weights = (query @ key.transpose(2, 3)).softmax(-1)
    weights = torch.where(HIDDEN, torch.zeros(()), weights)
    return (weights @ value).transpose(1, 2).flatten(2)


def of_graph(model, x, value):
    pairs = model.score(x[0]) + model.score(value[0]).T
    weights = functional.leaky_relu(pairs, 0.2).softmax(1)
    return torch.where(HIDDEN, torch.zeros(()), weights) @ value[0]


def masked_before(model, x, value):
    return scores(model, x).masked_fill(HIDDEN, -1e9).softmax(-1) @ value


def masked_before_and_after(model, x, value):
    weights = scores(model, x).masked_fill(HIDDEN, -torch.inf).softmax(-1)
    return weights.masked_fill(HIDDEN, 0) @ value


def normalised_again(model, x, value):
    weights = scores(model, x).softmax(-1) * CAUSAL
    return (weights / weights.sum(-1, keepdim=True)) @ value


def dropped(model, x, value):
    return model.drop(scores(model, x).softmax(-1)) @ value


def dropped_by_hand(model, x, value):
    kept = (torch.rand(6, 5, 5) > 0.4).float() / 0.6
    return (scores(model, x).softmax(-1) * kept) @ value


def without_largest(model, x, value):
    """Dropout by a function that happens to drop the largest weights."""
    weights = scores(model, x).softmax(-1)
    kept = (weights.detach() < 0.7 * weights.detach().max()).float() / 0.7
    return (weights * kept) @ value


def without_largest_by_module(model, x, value):
    return model.largest(scores(model, x).softmax(-1)) @ value


def nothing_hidden(model, x, value):
    return (scores(model, x).softmax(-1) * torch.ones(5, 5)) @ value


def chosen_experts(model, x, value):
    """A gate whose experts are not chosen keep their share of the probability."""
    gate = model.gate(x).softmax(-1)
    return gate.masked_fill(gate < gate.topk(2).values[..., 1:], 0) @ value


SICK = [multiplied, filled_and_dropped, of_heads, of_graph]
HEALTHY = [masked_before, masked_before_and_after, normalised_again, dropped, dropped_by_hand]
HEALTHY += [nothing_hidden, chosen_experts, without_largest, without_largest_by_module]


@pytest.mark.parametrize("use", SICK)
def test_weights_that_are_masked_after_their_softmax_are_found(findings_of, use):
    found = only(findings_of(Attention(use), (X, Y), functional.mse_loss), "GS122")
    assert found.severity == "warning"
    assert found.location.file.endswith("test_mask_after_softmax.py")


@pytest.mark.parametrize("use", some_on_push(HEALTHY, {1, 2, 4, 6, 7, 8}))
def test_weights_that_sum_to_one_or_are_no_attention_are_fine(findings_of, use):
    found = findings_of(Attention(use), (X, Y), functional.mse_loss)
    assert not [one for one in found if one.rule == "GS122"]
