"""GS718: labels of 0 and 1 in losses of margins, and products that look like them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

G = torch.Generator().manual_seed(3)
FEATURES = torch.randn(24, 6, generator=G)
LABELS = (FEATURES[:, 0] > 0).float()


def told(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
    found = gradscope.inspect(model, FEATURES, loss).findings
    return [one for one in found if one.rule == "GS718"]


FUNCTIONS = [
    lambda score, labels: functional.soft_margin_loss(score, labels),
    lambda score, labels: functional.hinge_embedding_loss(score, target=labels),
    lambda score, labels: functional.margin_ranking_loss(score, -score, labels, margin=1.0),
    lambda score, labels: functional.cosine_embedding_loss(
        score[:, None] * FEATURES, FEATURES, labels
    ),
]
NAMES = ["soft margin", "hinge", "ranking", "cosine"]


@pytest.mark.parametrize("function", some_on_push(FUNCTIONS, 2), ids=NAMES)
def test_labels_of_zero_in_a_function_of_torch_are_an_error(function):
    (found,) = told(lambda score: function(score, LABELS))
    assert (found.severity, dict(found.evidence)["zeros"]) == ("error", int((LABELS == 0).sum()))


@pytest.mark.parametrize("function", FUNCTIONS, ids=NAMES)
@pytest.mark.parametrize("labels", [2 * LABELS - 1, torch.ones(24)], ids=["signs", "all 1"])
def test_labels_of_one_and_minus_one_are_fine(function, labels):
    assert not told(lambda score: function(score, labels))


HINGES = [
    lambda score, y: torch.clamp(1 - y * score, min=0).mean(),
    lambda score, y: functional.relu(1 - score * y).mean(),
    lambda score, y: (1.0 - y * score).clamp(min=0).square().sum() / len(y),
]


@pytest.mark.parametrize("hinge", some_on_push(HINGES, 3), ids=["clamp", "relu", "squares"])
def test_hinge_by_hand_is_a_warning(hinge):
    (found,) = told(lambda score: hinge(score, LABELS))
    assert found.severity == "warning"
    assert not told(lambda score: hinge(score, 2 * LABELS - 1))


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            lambda score: (
                LABELS * score.square() + (1 - LABELS) * (1 - score).clamp(min=0)
            ).mean(),
            lambda score: (1 - LABELS * score).square().mean(),
            lambda score: (LABELS * score).clamp(min=0).mean() + score.square().mean(),
            lambda score: (LABELS * score - 1).clamp(min=0).mean() + score.square().mean(),
            lambda score: (1 - LABELS * score).clamp(0.1, 0.9).mean(),
            lambda score: (1 - torch.rand(24) * score).clamp(min=0).mean(),
            lambda score: functional.binary_cross_entropy_with_logits(score, LABELS),
        ],
        3,
    ),
    ids=["contrastive", "squares", "no margin", "above 1", "clamped", "weights", "cross-entropy"],
)
def test_other_products_with_labels_are_fine(loss):
    assert not told(loss)
