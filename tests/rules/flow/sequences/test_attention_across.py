"""GS120: a softmax along another dimension than that which its weights weigh."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(1))


class Attention(nn.Module):
    """Attention of one layer, whose weights are computed and used as told."""

    def __init__(self, use):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.value, self.score = nn.Linear(8, 8), nn.Linear(8, 1)
        self.codes, self.deep = nn.Linear(8, 3), nn.Linear(8, 8, bias=False)
        self.drop = nn.Dropout(0.1)
        self.use = use

    def forward(self, x):
        return x + self.use(self, self.value(x))


def scores(model, x):
    return model.query(x) @ model.key(x).transpose(1, 2) / 8**0.5


def heads(x):
    return x.unflatten(-1, (2, 4)).transpose(1, 2)


def over(dimension):
    return lambda model, x: scores(model, x).softmax(dimension) @ x


def over_with_dropout(dimension):
    def use(model, x):
        return model.drop(functional.softmax(scores(model, x), dim=dimension)).bmm(x)

    return use


def over_masked(dimension):
    def use(model, x):
        hidden = torch.ones(5, 5).tril(-3).bool()
        return scores(model, x).masked_fill(hidden, -1e9).softmax(dimension) @ x

    return use


def over_of_heads(dimension):
    def use(model, x):
        query, key = heads(model.query(x)), heads(model.key(x))
        weights = (query @ key.transpose(2, 3)).softmax(dimension)
        return (weights @ heads(x)).transpose(1, 2).flatten(2)

    return use


def over_pooled(dimension):
    def use(model, x):
        weights = model.score(x).squeeze(-1).softmax(dimension)
        return weights.unsqueeze(1).bmm(x)

    return use


def slots(model, x):
    weights = scores(model, x).softmax(1)
    return (weights / weights.sum(-1, keepdim=True)) @ x


def turned(model, x):
    return scores(model, x).softmax(1).transpose(1, 2) @ x


def clusters(model, x):
    assignment = model.codes(x).softmax(-1)
    return assignment @ (assignment.transpose(1, 2) @ x)


def linear_attention(model, x):
    context = model.key(x).softmax(1).transpose(1, 2) @ x
    return model.query(x).softmax(-1) @ context


def of_graph(dimension):
    """Attention over the nodes of one graph, as in a graph attention network."""

    def use(model, x):
        value = model.value(x[0])
        pairs = model.score(value) + model.score(model.key(x[0])).T
        weights = pairs.masked_fill(torch.ones(5, 5).tril(-3).bool(), -9e15).softmax(dimension)
        return model.drop(weights) @ value

    return use


def through_layer(model, x):
    return model.deep(model.value(x[0]).softmax(0))


def matrix_of_clusters(model, x):
    assignment = model.codes(x[0]).softmax(0)
    return assignment.softmax(-1) @ (assignment.T @ model.value(x[0]))


SICK = [over(1), over(-2), over(0), over_with_dropout(1), over_masked(1), over_of_heads(1)]
SICK += [over_of_heads(2), over_pooled(0), of_graph(0)]
HEALTHY = [over(-1), over_with_dropout(2), over_masked(2), over_of_heads(3), over_pooled(1)]
HEALTHY += [slots, turned, clusters, linear_attention]
HEALTHY += [of_graph(1), through_layer, matrix_of_clusters]
PUSHED = {0, 3, 5, 7, 9, 10, 11}


@pytest.mark.parametrize("use", some_on_push(SICK, {0, 3, 6, 7, 8}), ids=range(len(SICK)))
def test_weights_that_sum_along_another_dimension_are_found(findings_of, use):
    found = only(findings_of(Attention(use), (X, Y), functional.mse_loss), "GS120")
    assert found.severity == "warning"
    assert "softmax" in found.location.source


@pytest.mark.parametrize("use", some_on_push(HEALTHY, PUSHED), ids=range(len(HEALTHY)))
def test_weights_of_the_keys_are_fine(findings_of, use):
    found = findings_of(Attention(use), (X, Y), functional.mse_loss)
    assert not [one for one in found if one.rule == "GS120"]
