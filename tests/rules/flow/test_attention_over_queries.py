"""GS120: attention whose weights are normalised over the queries."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))


class Attending(nn.Module):
    """Makes queries, keys and values of an input, and combines them."""

    def __init__(self, attend):
        super().__init__()
        torch.manual_seed(2)
        self.queries, self.keys, self.values = (nn.Linear(8, 8) for _ in range(3))
        self.attend = attend

    def forward(self, x):
        return self.attend(self.queries(x), self.keys(x), self.values(x))


def of_queries(q, k, v):
    return (q @ k.mT).softmax(-2) @ v


def with_dropout(q, k, v):
    return functional.dropout(functional.softmax(q @ k.mT / 8**0.5, dim=1), 0.1) @ v


def with_heads(q, k, v):
    q, k, v = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in (q, k, v))
    weights = torch.softmax(q @ k.mT, dim=2)
    return torch.matmul(weights, v).transpose(1, 2).flatten(2)


def across(q, k, v):
    """Attention of three queries to six keys."""
    return torch.bmm((q[:, :3] @ k.mT).softmax(1), v)


def told(findings_of, attend):
    found = findings_of(Attending(attend), X, lambda model, x: model(x).square().mean())
    return [one for one in found if one.rule == "GS120"]


@pytest.mark.parametrize("attend", some_on_push([of_queries, with_heads, with_dropout, across], 2))
def test_weights_over_queries_are_a_warning_at_the_softmax(findings_of, attend):
    (found,) = told(findings_of, attend)
    assert found.severity == "warning"
    assert "softmax" in found.location.source
    evidence = dict(found.evidence)
    assert (evidence["queries"], evidence["keys"]) == ((3, 6) if attend is across else (6, 6))


def of_keys(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def of_slots(q, k, v):
    """Queries compete for keys, and each takes the mean of what it won."""
    weights = (q @ k.mT).softmax(-2)
    return weights / weights.sum(-1, keepdim=True) @ v


def linear_attention(q, k, v):
    """Keys are normalised over the tokens, before their products with the values."""
    return q.softmax(-1) @ (k.softmax(-2).mT @ v)


def turned(q, k, v):
    """Keys are the rows, so the weights of a query are a column."""
    return (k @ q.mT).softmax(-2).mT @ v


def pooled(q, k, v):
    return (q.mean(2, keepdim=True).softmax(1) * v).sum(1)


@pytest.mark.parametrize(
    "attend", some_on_push([of_keys, of_slots, linear_attention, turned, pooled], 3)
)
def test_other_softmaxes_are_fine(findings_of, attend):
    assert not told(findings_of, attend)
