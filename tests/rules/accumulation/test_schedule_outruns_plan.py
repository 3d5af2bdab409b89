"""GS326, judged from loops as users write them."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LinearLR,
    PolynomialLR,
)
from torch.utils.data import DataLoader, TensorDataset

from tests.rules import watching

BATCHES = 5


def trained(tmp_path, schedule, *, epochs=4, each_batch=True):
    """Train on a loader with a schedule that is stepped after each batch or each epoch."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(BATCHES * 8, 4)), batch_size=8)

    def train():
        scheduler = schedule(sgd)
        for _ in range(epochs):
            for (features,) in loader:
                loss = model(features).square().mean()
                sgd.zero_grad()
                loss.backward()
                sgd.step()
                if each_batch:
                    scheduler.step()
            if not each_batch:
                scheduler.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS326"]


@pytest.mark.parametrize(
    ("schedule", "epochs", "severity"),
    [
        (lambda sgd: CosineAnnealingLR(sgd, T_max=4), 4, "warning"),
        (lambda sgd: CosineAnnealingLR(sgd, T_max=3), 3, "warning"),
        # Steps with a rate of 0 are an error, which this explains.
        (lambda sgd: PolynomialLR(sgd, total_iters=4), 4, "error"),
    ],
    ids=["cosine", "three epochs", "polynomial"],
)
def test_a_schedule_of_epochs_in_each_batch_is_found(tmp_path, schedule, epochs, severity):
    (found,) = trained(tmp_path, schedule, epochs=epochs)
    assert found.severity == severity
    assert found.location.source == "scheduler.step()"
    evidence = dict(found.evidence)
    assert evidence["steps_planned"] == epochs
    # The last call comes after the last step.
    assert evidence["scheduler_steps"] == epochs * BATCHES - 1


@pytest.mark.parametrize(
    ("schedule", "loop"),
    [
        (lambda sgd: CosineAnnealingLR(sgd, T_max=4), {"each_batch": False}),
        (lambda sgd: CosineAnnealingLR(sgd, T_max=4 * BATCHES), {}),
        (lambda sgd: CosineAnnealingLR(sgd, T_max=5), {}),
        (lambda sgd: CosineAnnealingLR(sgd, T_max=2), {"epochs": 2}),
        (lambda sgd: CosineAnnealingWarmRestarts(sgd, T_0=4), {}),
        (lambda sgd: LinearLR(sgd, total_iters=4), {}),
    ],
    ids=["of epochs", "of batches", "one off", "two epochs", "restarts", "warm-up"],
)
def test_other_schedules_are_fine(tmp_path, schedule, loop):
    assert not trained(tmp_path, schedule, **loop)
