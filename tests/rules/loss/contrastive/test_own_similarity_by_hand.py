"""GS717: contrastive losses that are written by hand, and healthy ones that look like them."""

import pytest
import torch
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.loss.contrastive.test_own_similarity_in_loss import PAIRS, PARTNERS, told

ALL = 2 * PAIRS
OTHERS = ~torch.eye(ALL, dtype=torch.bool)


def unit(z):
    return functional.normalize(z, dim=1)


def partner_of(z):
    return (z * z[PARTNERS]).sum(1) / 0.5


def quotient(z):
    z = unit(z)
    return -torch.log(partner_of(z).exp() / torch.exp(z @ z.T / 0.5).sum(1)).mean()


def difference(z):
    z = unit(z)
    return (torch.logsumexp(torch.mm(z, z.t()) / 0.5, dim=1) - partner_of(z)).mean()


def indexed(z):
    z = unit(z)
    shares = (z.matmul(z.T) / 0.5).log_softmax(1)
    return -shares[torch.arange(ALL), PARTNERS].mean()


def supervised(z):
    z = unit(z)
    logits = z @ z.T / 0.5
    logits = logits - logits.max(1, keepdim=True).values.detach()
    shares = logits - torch.log(logits.exp().sum(1, keepdim=True))
    mask = functional.one_hot(PARTNERS, ALL).float()
    return -(mask * shares).sum(1).mean()


def behind_the_positive(z):
    z = unit(z)
    logits = torch.cat([partner_of(z)[:, None], z @ z.T / 0.5], dim=1)
    return functional.cross_entropy(logits, torch.zeros(ALL, dtype=torch.long))


SICK = [quotient, difference, indexed, supervised, behind_the_positive]


@pytest.mark.parametrize("loss", some_on_push(SICK, {0, 3}))
def test_own_similarities_by_hand_are_an_error(loss):
    (found,) = told(loss)
    assert found.severity == "error"
    assert dict(found.evidence)["rows_won_by_itself"] == ALL


def masked(z):
    z = unit(z)
    others = torch.exp(z @ z.T / 0.5).masked_select(OTHERS).view(ALL, -1)
    return -torch.log(partner_of(z).exp() / others.sum(1)).mean()


def subtracted(z):
    z = unit(z)
    others = torch.exp(z @ z.T / 0.5).sum(1) - torch.exp(torch.tensor(2.0))
    return -torch.log(partner_of(z).exp() / others).mean()


def multiplied(z):
    z = unit(z)
    others = (torch.exp(z @ z.T / 0.5) * OTHERS).sum(1)
    return -torch.log(partner_of(z).exp() / others).mean()


def filled(z):
    z = unit(z)
    shares = (z @ z.T / 0.5).masked_fill(~OTHERS, -1e9).log_softmax(1)
    return -shares[torch.arange(ALL), PARTNERS].mean()


def distilled(z):
    z = unit(z)
    shares = (z @ z.T / 0.5).log_softmax(1)
    teacher = torch.linspace(1, 2, ALL * ALL).view(ALL, ALL).softmax(1)
    return -(teacher * shares).sum(1).mean()


def attended(z):
    scores = torch.exp(z @ z.T)
    return ((scores / scores.sum(1, keepdim=True)) @ z).square().mean()


def discrepancy(z):
    return torch.exp(z @ z.T / 8).mean().log()


HEALTHY = [masked, subtracted, multiplied, filled, distilled, attended, discrepancy]


@pytest.mark.parametrize("loss", some_on_push(HEALTHY, {1, 4}))
def test_masked_and_other_similarities_are_fine(loss):
    assert not told(loss)


def of_two_views(z, *, leave_out):
    one, other = unit(z[:PAIRS]), unit(z[PAIRS:])
    negatives = one @ other.T
    if leave_out:
        negatives = negatives[~torch.eye(PAIRS, dtype=torch.bool)].view(PAIRS, -1)
        negatives = torch.cat([negatives, one @ other.roll(1, 1).T], dim=1)
    logits = torch.cat([(one * other).sum(1, keepdim=True), negatives], dim=1) / 0.1
    return functional.cross_entropy(logits, torch.zeros(PAIRS, dtype=torch.long))


def test_a_positive_among_the_negatives_is_a_warning():
    (found,) = told(lambda z: of_two_views(z, leave_out=False))
    assert found.severity == "warning"
    assert found.count == PAIRS


def test_negatives_without_the_positive_are_fine():
    assert not told(lambda z: of_two_views(z, leave_out=True))
