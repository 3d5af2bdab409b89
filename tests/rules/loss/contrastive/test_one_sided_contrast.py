"""GS725: contrastive losses that take one direction twice."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push
from tests.rules.contrasts import (
    FINE,
    IMAGES,
    LABELS,
    PAIRS,
    similarities,
    told,
    unit,
)


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


@pytest.mark.parametrize("loss", some_on_push(FINE, 3))
def test_other_contrasts_are_fine(loss):
    assert not told(loss, "GS725")


@pytest.mark.parametrize("has_bias", [True, False])
def test_as_many_classes_as_examples_are_no_pairs(has_bias):
    """A classifier's weight matrix gives its logits, and not a product of embeddings."""
    torch.manual_seed(0)

    def loss(output):
        first = functional.cross_entropy(output, LABELS)
        return first + functional.cross_entropy(output, LABELS)

    found = gradscope.inspect(nn.Linear(8, PAIRS, bias=has_bias), IMAGES, loss).findings
    assert not [one for one in found if one.rule in ("GS725", "GS726")]
