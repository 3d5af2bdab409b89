"""GS326, judged from loops as users write them."""

import functools

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    PolynomialLR,
)
from torch.utils.data import DataLoader, TensorDataset

from tests.nightly import some_on_push
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
    some_on_push(
        [
            (lambda sgd: CosineAnnealingLR(sgd, T_max=4), 4, "warning"),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=3), 3, "warning"),
            # Steps with a rate of 0 are an error, which this explains.
            (lambda sgd: PolynomialLR(sgd, total_iters=4), 4, "error"),
        ],
        3,
    ),
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


def warmed_up(planned):
    """Return a maker of a linear schedule with a warm-up, as transformers makes it."""

    def factor(step, *, num_warmup_steps, num_training_steps):
        if step < num_warmup_steps:
            return step / num_warmup_steps
        return max(0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps))

    given = {"num_warmup_steps": 2, "num_training_steps": planned}
    return lambda sgd: LambdaLR(sgd, functools.partial(factor, **given))  # made


@pytest.mark.parametrize(
    ("planned", "is_found"), [(10, True), (15, False), (14, False), (9, False)]
)
def test_a_warm_up_that_is_planned_for_one_epoch_is_found(tmp_path, planned, is_found):
    """Its 20th call comes after the last step, so 19 are counted."""
    found = trained(tmp_path, warmed_up(planned), epochs=4)
    assert [dict(one.evidence)["scheduler_steps"] for one in found] == [19] * is_found
    for one in found:
        assert any("# made" in line.source for line in one.related)


def test_a_warm_up_that_is_planned_for_all_steps_is_fine(tmp_path):
    assert not trained(tmp_path, warmed_up(20), epochs=4)


@pytest.mark.parametrize(
    ("schedule", "loop"),
    some_on_push(
        [
            (lambda sgd: CosineAnnealingLR(sgd, T_max=4), {"each_batch": False}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=4 * BATCHES), {}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=5), {}),
            (lambda sgd: CosineAnnealingLR(sgd, T_max=2), {"epochs": 2}),
            (lambda sgd: CosineAnnealingWarmRestarts(sgd, T_0=4), {}),
            (lambda sgd: LinearLR(sgd, total_iters=4), {}),
        ],
        3,
    ),
    ids=["of epochs", "of batches", "one off", "two epochs", "restarts", "warm-up"],
)
def test_other_schedules_are_fine(tmp_path, schedule, loop):
    assert not trained(tmp_path, schedule, **loop)


def accumulated(tmp_path, *, planned, micro_batches=4, each_batch=True, steps=12):
    """Train on micro-batches with a cosine that is stepped after each of them or each step."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        scheduler = CosineAnnealingLR(sgd, T_max=planned)
        for _ in range(steps):
            for _ in range(micro_batches):
                (model(torch.randn(8, 4)).square().mean() / micro_batches).backward()
                if each_batch:
                    scheduler.step()
            sgd.step()
            sgd.zero_grad()
            if not each_batch:
                scheduler.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS326"]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("micro_batches", [2, 4])
def test_a_schedule_of_optimizer_steps_in_each_micro_batch_is_found(tmp_path, micro_batches):
    (found,) = accumulated(tmp_path, planned=12, micro_batches=micro_batches)
    assert found.severity == "warning"
    assert "as many as the optimizer makes steps" in found.message
    assert "micro-batch" in found.remedy


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    "loop",
    some_on_push(
        [
            {"planned": 12, "each_batch": False},
            {"planned": 48},
            {"planned": 13},
            {"planned": 6, "steps": 6},
            {"planned": 12, "micro_batches": 1},
        ],
        2,
    ),
    ids=["of steps", "of micro-batches", "one off", "few steps", "no accumulation"],
)
def test_other_schedules_under_accumulation_are_fine(tmp_path, loop):
    assert not accumulated(tmp_path, **loop)
