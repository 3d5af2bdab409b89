"""GS324, judged from loops as users write them."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, StepLR

from tests.nightly import some_on_push
from tests.rules import watching

EPOCHS, BATCHES = 4, 6


def trained(tmp_path, schedule, *, every=BATCHES, epochs=EPOCHS):
    """Train with a schedule that is stepped after so many batches."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        scheduler = schedule(sgd)
        for batch in range(1, epochs * BATCHES + 1):
            loss = model(torch.randn(8, 4)).square().mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            if batch % every == 0:
                scheduler.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS324"]


@pytest.mark.parametrize(
    "schedule",
    some_on_push(
        [
            lambda sgd: OneCycleLR(sgd, max_lr=0.1, total_steps=EPOCHS * BATCHES),
            lambda sgd: OneCycleLR(sgd, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=BATCHES),
            lambda sgd: CosineAnnealingLR(sgd, T_max=EPOCHS * BATCHES),
            lambda sgd: LinearLR(sgd, total_iters=EPOCHS * BATCHES),
        ],
        2,
    ),
    ids=["cycle", "cycle by epochs", "cosine", "linear"],
)
def test_a_schedule_of_batches_that_is_stepped_once_an_epoch_is_found(tmp_path, schedule):
    (found,) = trained(tmp_path, schedule)
    assert found.severity == "warning"
    assert found.location.source == "scheduler.step()"
    evidence = dict(found.evidence)
    assert evidence["steps_planned"] == evidence["steps"] == EPOCHS * BATCHES
    assert evidence["scheduler_steps"] == EPOCHS - 1  # the last call comes after the last step


@pytest.mark.parametrize(
    ("schedule", "loop"),
    some_on_push(
        [
            (lambda sgd: OneCycleLR(sgd, max_lr=0.1, total_steps=EPOCHS * BATCHES), {"every": 1}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=EPOCHS), {}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=2 * EPOCHS * BATCHES), {}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=EPOCHS * BATCHES), {"every": 3}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=3 * BATCHES), {"epochs": 3}),
            (lambda sgd: StepLR(sgd, step_size=EPOCHS * BATCHES), {}),
        ],
        3,
    ),
    ids=["every batch", "of epochs", "cut short", "a third", "too few", "no length"],
)
def test_other_schedules_are_fine(tmp_path, schedule, loop):
    assert not trained(tmp_path, schedule, **loop)


def warm_up(steps, after=lambda step: 1.0):
    return lambda sgd: LambdaLR(
        sgd, lambda step: (step + 1) / steps if step < steps else after(step)
    )


@pytest.mark.parametrize("steps", [100, 500])
def test_a_warm_up_of_batches_that_is_stepped_once_an_epoch_is_found(tmp_path, steps):
    (found,) = trained(tmp_path, warm_up(steps), epochs=6)
    assert found.location.source == "scheduler.step()"
    evidence = dict(found.evidence)
    assert evidence["scheduler_steps"] == 5
    assert evidence["warm_up_rate"] == pytest.approx(6 / steps)


def linear(steps, start=1e-3):
    return lambda sgd: LinearLR(sgd, start_factor=start, total_iters=steps)


def test_a_linear_warm_up_of_batches_that_is_stepped_once_an_epoch_is_found(tmp_path):
    (found,) = trained(tmp_path, linear(40), every=2 * BATCHES, epochs=8)
    assert found.location.source == "scheduler.step()"
    evidence = dict(found.evidence)
    assert evidence["scheduler_steps"] == 3
    assert evidence["warm_up_rate"] == pytest.approx(3 / 40, abs=0.002)


WARM_UPS = {
    "linear, of epochs": (linear(5), {"every": 2 * BATCHES, "epochs": 8}),
    "linear, longer than the run": (linear(500), {"every": 2 * BATCHES, "epochs": 8}),
    "linear, from a tenth": (linear(40, 0.1), {"every": 2 * BATCHES, "epochs": 8}),
    "linear, every batch": (linear(40), {"every": 1, "epochs": 8}),
    "every batch": (warm_up(500), {"every": 1, "epochs": 6}),
    "of epochs": (warm_up(10), {"epochs": 6}),
    "just above the limit": (warm_up(60), {"epochs": 6}),
    "three epochs": (warm_up(500), {"epochs": 3}),
    "falling": (lambda sgd: LambdaLR(sgd, lambda step: 0.05 * 0.9**step), {"epochs": 6}),
    "constant": (lambda sgd: LambdaLR(sgd, lambda _: 0.05), {"epochs": 6}),
    "cycle": (lambda sgd: LambdaLR(sgd, lambda step: 0.05 + 0.01 * (step % 2)), {"epochs": 6}),
}


@pytest.mark.parametrize("name", some_on_push(WARM_UPS, 4))
def test_other_warm_ups_are_fine(tmp_path, name):
    schedule, loop = WARM_UPS[name]
    assert not trained(tmp_path, schedule, **loop)
