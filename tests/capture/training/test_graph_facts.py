"""What is read from the graph of a loss, against losses of known reductions."""

import pytest
import torch
from torch.nn import functional

from gradscope.capture.training.graph_facts import scaling

ROWS, CLASSES = 8, 5


def losses():
    scores = torch.randn(ROWS, CLASSES, requires_grad=True)
    log_p, target = scores.log_softmax(-1), torch.randn(ROWS, CLASSES).softmax(-1)
    label, error = torch.arange(ROWS) % CLASSES, (scores - target).square()
    return {
        "mean": error.mean(),
        "sum": error.sum(),
        "cross entropy": functional.cross_entropy(scores, label),
        "batchmean": functional.kl_div(log_p, target, reduction="batchmean"),
        "batchmean times 9": 9 * functional.kl_div(log_p, target, reduction="batchmean"),
        "sum over rows": error.sum() / ROWS,
        "sum over elements": error.sum() / error.numel(),
        "mean over 4": error.mean() / 4,
        "mean times a quarter": error.mean() * 0.25,
        "batchmean over 4": functional.kl_div(log_p, target, reduction="batchmean") / 4,
        "sum over rows and micro-batches": error.sum() / (ROWS * 4),
    }


@pytest.mark.parametrize(
    ("name", "is_mean", "divided", "multiplied"),
    [
        ("mean", True, 1, 1),
        ("sum", False, 1, 1),
        ("cross entropy", True, 1, 1),
        ("batchmean", True, 1, 1),
        ("batchmean times 9", True, 1 / 9, 9),
        ("sum over rows", True, 1, 1),
        ("sum over elements", True, 1, 1),
        ("mean over 4", True, 4, 1),
        ("mean times a quarter", True, 4, 1),
        ("batchmean over 4", True, 4, 1),
        ("sum over rows and micro-batches", False, 32, 1),
    ],
)
def test_reduction_and_constants_of_a_loss(name, is_mean, divided, multiplied):
    torch.manual_seed(0)
    found = scaling(losses()[name].grad_fn, (), readable=True)
    assert found.is_mean is is_mean
    assert found.divided == pytest.approx(divided)
    assert found.multiplied == pytest.approx(multiplied)
