"""GS725 and GS726: contrastive losses of one direction, or of vectors normalised over the batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

PAIRS = 12
G = torch.Generator().manual_seed(5)
IMAGES, TEXTS = torch.randn(PAIRS, 8, generator=G), torch.randn(PAIRS, 6, generator=G)
LABELS = torch.arange(PAIRS)


class Encoders(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.image, self.text = nn.Linear(8, width), nn.Linear(6, width)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, images):
        return self.image(images), self.text(TEXTS), self.scale.exp()


def told(loss, code, width=10):
    torch.manual_seed(0)
    found = gradscope.inspect(Encoders(width), IMAGES, lambda out: loss(*out)).findings
    return [one for one in found if one.rule == code]


def unit(vectors, dim=-1):
    return functional.normalize(vectors, dim=dim)


def similarities(images, texts, scale):
    return scale * unit(images) @ unit(texts).T


def same_twice(images, texts, scale):
    logits = similarities(images, texts, scale)
    of_images = functional.cross_entropy(logits, LABELS)
    of_texts = functional.cross_entropy(logits, LABELS)
    return (of_images + of_texts) / 2


def same_by_function(images, texts, scale):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    logits = unit(images) @ unit(texts).T / 0.1
    return sum(criterion(one, LABELS) for one in (logits, logits)) + 0 * scale


def same_with_matmul(images, texts, scale):
    logits = torch.matmul(scale * unit(images), unit(texts).t())
    return 0.5 * functional.cross_entropy(logits, LABELS) + 0.5 * functional.cross_entropy(
        logits, LABELS
    )


@pytest.mark.parametrize("loss", some_on_push([same_twice, same_by_function, same_with_matmul], 2))
def test_one_direction_taken_twice_is_a_warning(loss):
    (found,) = told(loss, "GS725")
    assert found.severity == "warning"
    assert dict(found.evidence)["pairs"] == PAIRS
    assert not told(loss, "GS726")


def both_directions(images, texts, scale):
    logits = similarities(images, texts, scale)
    return functional.cross_entropy(logits, LABELS) + functional.cross_entropy(logits.T, LABELS)


def two_products(images, texts, scale):
    first, second = similarities(images, texts, scale), similarities(texts, images, scale)
    return functional.cross_entropy(first, LABELS) + functional.cross_entropy(second, LABELS)


def other_targets(images, texts, scale):
    logits = similarities(images, texts, scale)
    mixed = LABELS.roll(1)
    return 0.7 * functional.cross_entropy(logits, LABELS) + 0.3 * functional.cross_entropy(
        logits, mixed
    )


def one_direction(images, texts, scale):
    return functional.cross_entropy(similarities(images, texts, scale), LABELS)


def of_itself(images, _, scale):
    logits = scale * unit(images) @ unit(images).T
    return functional.cross_entropy(logits, LABELS) + functional.cross_entropy(logits.T, LABELS)


FINE = [both_directions, two_products, other_targets, one_direction, of_itself]


@pytest.mark.parametrize("loss", some_on_push(FINE, 3))
@pytest.mark.parametrize("code", ["GS725", "GS726"])
def test_other_contrasts_are_fine(loss, code):
    assert not told(loss, code)


@pytest.mark.parametrize("has_bias", [True, False])
def test_as_many_classes_as_examples_are_no_pairs(has_bias):
    """A classifier's weight matrix gives its logits, and not a product of embeddings."""
    torch.manual_seed(0)

    def loss(output):
        first = functional.cross_entropy(output, LABELS)
        return first + functional.cross_entropy(output, LABELS)

    found = gradscope.inspect(nn.Linear(8, PAIRS, bias=has_bias), IMAGES, loss).findings
    assert not [one for one in found if one.rule in ("GS725", "GS726")]


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
