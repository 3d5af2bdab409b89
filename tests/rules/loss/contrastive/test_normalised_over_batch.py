"""GS726: contrastive losses of vectors that are normalised over the batch."""

import pytest
import torch
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.contrasts import (
    FINE,
    LABELS,
    PAIRS,
    told,
    unit,
)


def over_batch(images, texts, scale):
    logits = scale * unit(images, dim=0) @ unit(texts, dim=0).T
    return functional.cross_entropy(logits, LABELS) + functional.cross_entropy(logits.T, LABELS)


def one_over_batch(images, texts, scale):
    return functional.cross_entropy(scale * (unit(images) @ unit(texts, dim=0).T), LABELS)


def by_hand(images, texts, scale):
    images = images / images.norm(dim=0, keepdim=True)
    texts = texts / texts.norm(dim=0)
    return functional.cross_entropy(images @ texts.T * scale, LABELS)


# Also with as many features as examples, and with fewer.
@pytest.mark.parametrize("loss", some_on_push([over_batch, one_over_batch, by_hand], 2))
@pytest.mark.parametrize("width", some_on_push([10, PAIRS, 4], 2))
def test_vectors_normalised_over_the_batch_are_a_warning(loss, width):
    (found,) = told(loss, "GS726", width)
    assert found.severity == "warning"
    assert "norm" in found.location.source or "unit" in found.location.source


@pytest.mark.parametrize("loss", some_on_push(FINE, 3))
def test_other_contrasts_are_fine(loss):
    assert not told(loss, "GS726")


def by_hand_of_rows(images, texts, scale):
    images = images / images.norm(dim=1, keepdim=True)
    texts = texts / texts.norm(dim=-1)[:, None]
    return functional.cross_entropy(images @ texts.T * scale, LABELS)


def redundancy(images, texts, scale):
    """A loss of the correlations of features, which are normalised over the batch."""
    correlation = unit(images, dim=0).T @ unit(texts, dim=0)
    return scale * (correlation - torch.eye(len(correlation))).square().sum()


@pytest.mark.parametrize("loss", [by_hand_of_rows, redundancy])
@pytest.mark.parametrize("width", some_on_push([10, PAIRS], 1))
def test_other_normalisations_are_fine(loss, width):
    assert not told(loss, "GS726", width)


def cosines(images, texts, scale, dim=0):
    return scale * (1 - functional.cosine_similarity(images, texts, dim=dim)).mean()


def cosines_of_targets(images, texts, scale):
    return scale * -(unit(images, dim=0) * unit(texts, dim=0).detach()).sum(1).mean()


def cosines_of_rows(images, texts, scale):
    return cosines(images, texts, scale, dim=-1)


def correlations(images, texts, scale):
    return cosines(images - images.mean(0), texts - texts.mean(0), scale)


@pytest.mark.parametrize("loss", [cosines, cosines_of_targets])
@pytest.mark.parametrize("width", some_on_push([10, PAIRS, 4], 1))
def test_cosines_of_features_are_a_warning(loss, width):
    (found,) = told(loss, "GS726", width)
    assert found.severity == "warning"


@pytest.mark.parametrize("loss", [cosines_of_rows, correlations])
@pytest.mark.parametrize("width", some_on_push([10, PAIRS], 1))
def test_cosines_of_examples_and_correlations_are_fine(loss, width):
    assert not told(loss, "GS726", width)
