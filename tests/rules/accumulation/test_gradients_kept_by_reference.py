"""GS323, judged from trainings that collect the gradients of two losses."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def said(tmp_path, collect, *, zero=True, to_none=False, use=None):
    """Train on two losses, and step with the sum of what was collected for each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for one in weights:
        one.grad = torch.zeros_like(one)

    def train():
        for _ in range(4):
            output = model(torch.randn(16, 6))
            kept = []
            for number in range(2):
                if zero or not number:
                    optimizer.zero_grad(set_to_none=to_none)
                output[:, number].square().mean().backward(retain_graph=True)
                collect(kept, weights)
            (use or flat)(kept)
            optimizer.step()

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS323"]


def flat(kept):
    for one in kept:
        torch.cat([gradient.flatten() for gradient in one])


def values(kept):
    for one in kept:
        sum(gradient.sum() for gradient in one.values())


def difference(kept):
    for first, last in zip(*kept, strict=True):
        first.sub(last)


def references(kept, weights):
    kept.append([one.grad for one in weights])


def named_references(kept, weights):
    kept.append({str(number): one.grad for number, one in enumerate(weights)})


def copies(kept, weights):
    kept.append([one.grad.clone() for one in weights])


def last(kept, weights):
    kept[:] = [[one.grad for one in weights]]


@pytest.mark.parametrize("use", some_on_push([flat, difference], {0}))
@pytest.mark.parametrize("zero", [True, False])
def test_references_are_an_error(tmp_path, use, zero):
    (found,) = said(tmp_path, references, use=use, zero=zero)
    assert found.severity == "error"
    assert dict(found.evidence)["collections"] == 2


@pytest.mark.nightly
def test_references_by_name_are_an_error(tmp_path):
    assert said(tmp_path, named_references, use=values)


def test_copies_are_fine(tmp_path):
    assert not said(tmp_path, copies)


def test_gradients_that_are_made_anew_are_fine(tmp_path):
    assert not said(tmp_path, references, to_none=True)


@pytest.mark.nightly
def test_collection_that_the_next_one_replaces_is_fine(tmp_path):
    assert not said(tmp_path, last)


@pytest.mark.nightly
def test_collection_that_is_kept_for_the_whole_training_is_fine(tmp_path):
    permanent = []

    def collect(kept, weights):
        permanent[:] = permanent or [one.grad for one in weights]
        last(kept, weights)

    assert not said(tmp_path, collect)
