"""GS706: first losses that are too high or too low, and others."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.watching import findings_of as findings_of_run

X = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
CLASSES = torch.arange(40) % 5


def told(findings):
    return [finding for finding in findings if finding.rule == "GS706"]


class Scaled(nn.Module):
    """Returns logits of a loss that is about `ratio` times ln(5)."""

    def __init__(self, ratio, *, is_right):
        super().__init__()
        self.layer = nn.Linear(8, 5)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        goal = functional.one_hot(CLASSES if is_right else (CLASSES + 1) % 5, 5).float()
        loss = ratio * math.log(5)
        # Of one logit s among zeros: -log p = log(e^s + 4) - s where it is the right one.
        size = math.log(4 / math.expm1(loss)) if is_right else _wrong(loss)
        self.register_buffer("logits", size * goal)

    def forward(self, x):
        return self.layer(x) + self.logits


def _wrong(loss):
    return math.log(math.exp(loss) - 4)


@pytest.mark.parametrize(("ratio", "is_told"), [(2.9, False), (3.1, True), (20.0, True)])
def test_a_loss_that_is_too_high_is_a_note(findings_of, ratio, is_told):
    model = Scaled(ratio, is_right=False)
    found = told(findings_of(model, (X, CLASSES), functional.cross_entropy))
    assert [one.severity for one in found] == ["note"] * is_told
    assert all(dict(one.evidence)["ratio"] == pytest.approx(ratio, rel=1e-3) for one in found)


@pytest.mark.parametrize(("ratio", "is_told"), [(0.11, False), (0.09, True), (1.0, False)])
def test_a_loss_that_is_too_low_is_a_note(findings_of, ratio, is_told):
    model = Scaled(ratio, is_right=ratio < 1)
    found = told(findings_of(model, (X, CLASSES), functional.cross_entropy))
    assert [one.severity for one in found] == ["note"] * is_told


def test_two_classes_by_logits(findings_of):
    model, goal = nn.Linear(8, 1), (X[:, :1] > 0).float()
    assert not told(findings_of(model, (X, goal), functional.binary_cross_entropy_with_logits))
    with torch.no_grad():
        model.weight[0, 0] = 500.0
    assert told(findings_of(model, (X, goal), functional.binary_cross_entropy_with_logits))


@pytest.mark.parametrize(
    "loss",
    [
        lambda output, target: functional.cross_entropy(output, target, reduction="sum"),
        lambda output, target: 100 * functional.cross_entropy(output, target),
        lambda output, target: functional.mse_loss(output, functional.one_hot(target, 5).float()),
    ],
    ids=["sum", "weighted", "regression"],
)
def test_other_losses_are_not_judged(findings_of, loss):
    assert not told(findings_of(nn.Linear(8, 5), (X, CLASSES), loss))


def train(first, later):
    model = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        logits = model(X) * (first if step == 0 else later)
        functional.cross_entropy(logits, CLASSES).backward()
        optimizer.step()


def test_of_a_run_only_the_first_loss_counts(tmp_path):
    (found,) = told(findings_of_run(lambda: train(40.0, 1.0), tmp_path))
    assert found.step == 0


def test_a_later_loss_of_a_run_is_near_but_fine(tmp_path):
    assert not told(findings_of_run(lambda: train(1.0, 40.0), tmp_path))
