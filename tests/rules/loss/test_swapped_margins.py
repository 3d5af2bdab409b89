"""GS720: triplet losses whose positive and negative side are swapped."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(48, 6, generator=torch.Generator().manual_seed(1))


class Embedding(nn.Module):
    """Embeds anchors, positives and negatives."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 4)
        self.criterion = nn.TripletMarginLoss(margin=0.5)

    def forward(self, x):
        return self.layer(x).chunk(3)


def squares(one, other):
    return (one - other).pow(2).sum(1)


def by_hand(model, x):
    anchor, positive, negative = model(x)
    d_pos, d_neg = squares(anchor, positive), squares(anchor, negative)
    return functional.relu(d_neg - d_pos + 0.5).mean()


def clamped(model, x):
    anchor, positive, negative = model(x)
    dist_ap, dist_an = (anchor - positive).norm(dim=1), (anchor - negative).norm(dim=1)
    return torch.clamp(0.5 + dist_an - dist_ap, min=0).sum()


def soft(model, x):
    anchor, positive, negative = model(x)
    pos_dist = functional.pairwise_distance(anchor, positive)
    neg_dist = functional.pairwise_distance(anchor, negative)
    return functional.softplus(neg_dist - pos_dist).mean()


def called(model, x):
    anchor, positive, negative = model(x)
    return functional.triplet_margin_loss(anchor, negative, positive)


def as_module(model, x):
    anchor, positive, negative = model(x)
    return model.criterion(anchor, negative, positive)


def right(model, x):
    anchor, positive, negative = model(x)
    d_pos, d_neg = squares(anchor, positive), squares(anchor, negative)
    return functional.relu(d_pos - d_neg + 0.5).mean()


def right_call(model, x):
    anchor, positive, negative = model(x)
    return functional.triplet_margin_loss(anchor, positive, negative)


def similarities(model, x):
    anchor, positive, negative = model(x)
    pos = functional.cosine_similarity(anchor, positive)
    neg = functional.cosine_similarity(anchor, negative)
    return functional.relu(neg - pos + 0.5).mean()


def products(model, x):
    anchor, positive, negative = model(x)
    pos, neg = (anchor * positive).sum(1), (anchor * negative).sum(1)
    return functional.relu(neg - pos + 0.5).mean()


def scores(model, x):
    head, positive, negative = model(x)
    pos_score, neg_score = -squares(head, positive), -squares(head, negative)
    return functional.relu(neg_score - pos_score + 0.5).mean()


def negated(model, x):
    anchor, positive, negative = model(x)
    d_pos, d_neg = squares(anchor, positive), squares(anchor, negative)
    return functional.relu(0.5 - (d_neg - d_pos)).mean()


def unnamed(model, x):
    first, second, third = model(x)
    near, far = squares(first, second), squares(first, third)
    return functional.relu(far - near + 0.5).mean()


def told(findings):
    return [one for one in findings if one.rule == "GS720"]


SICK = [by_hand, clamped, soft, called, as_module]
HEALTHY = [right, right_call, similarities, products, scores, negated, unnamed]


@pytest.mark.parametrize("loss", some_on_push(SICK, {0, 1, 3, 4}))
def test_a_negative_that_is_drawn_nearer_is_an_error(findings_of, loss):
    (found,) = told(findings_of(Embedding(), X, loss))
    assert found.severity == "error"
    assert "swapped" in found.message


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, {0, 2, 4, 5}))
def test_other_triplets_are_fine(findings_of, loss):
    assert not told(findings_of(Embedding(), X, loss))
