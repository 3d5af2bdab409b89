"""GS327, judged from loops as users write them."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tests.nightly import some_on_push
from tests.rules import watching

EPOCHS = 10


def trained(tmp_path, step, *, mode, epochs=EPOCHS, patience=1, rate=0.05):
    """Train, and step a schedule after each epoch.

    Args:
        step: Steps the schedule, given the mean loss of the epoch and a score that rises.
    """
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=rate)
    features = torch.randn(32, 4)
    target = features.sum(1, keepdim=True)

    def train():
        schedule = ReduceLROnPlateau(sgd, mode=mode, patience=patience)
        for epoch in range(epochs):
            total = 0.0
            for _ in range(4):
                loss = (model(features) - target).square().mean()
                sgd.zero_grad()
                loss.backward()
                sgd.step()
                total += loss.item()
            step(schedule, total / 4, 0.5 + epoch / (2 * epochs))

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS327"]


def named_loss(schedule, mean, _):
    val_loss = mean
    schedule.step(val_loss)


def keyed_loss(schedule, mean, _):
    history = {"valid/mse": [mean]}
    schedule.step(metrics=history["valid/mse"][-1])


def loss_of_a_function(schedule, mean, _):
    def evaluate_model():
        running_loss = mean
        return running_loss / 2

    value = evaluate_model()
    schedule.step(value)


def named_score(schedule, _, score):
    epoch_acc = torch.tensor(score)
    schedule.step(epoch_acc)


def attribute(schedule, _, score):
    class Best:
        f1 = score

    schedule.step(Best.f1)


@pytest.mark.parametrize(
    ("step", "mode"),
    some_on_push(
        [
            (named_loss, "max"),
            (keyed_loss, "max"),
            (loss_of_a_function, "max"),
            (named_score, "min"),
            (attribute, "min"),
        ],
        3,
    ),
)
def test_progress_that_counts_as_a_plateau_is_found(step, mode, tmp_path):
    (found,) = trained(tmp_path, step, mode=mode)
    assert found.severity == "warning"
    assert found.location.source.startswith("schedule = ReduceLROnPlateau")
    assert [one.source.startswith("schedule.step(") for one in found.related] == [True]
    assert dict(found.evidence)["rate_cuts"] > 1


def negated(schedule, mean, _):
    schedule.step(-mean)


def negated_before(schedule, mean, _):
    goal = -mean
    schedule.step(goal)


def error_of_score(schedule, _, score):
    schedule.step(1 - score)


def loss_that_grows(schedule, _, score):
    margin_loss = score
    schedule.step(margin_loss)


def unnamed(schedule, mean, _):
    figure = mean
    schedule.step(figure)


def of_both(schedule, mean, score):
    acc, loss = score, mean
    schedule.step(acc + loss)


@pytest.mark.parametrize(
    ("step", "chosen"),
    some_on_push(
        [
            (named_loss, {"mode": "min"}),
            (named_score, {"mode": "max"}),
            (named_loss, {"mode": "max", "epochs": 2}),
            (named_loss, {"mode": "max", "patience": 50}),
            (named_loss, {"mode": "max", "rate": 0.0}),
            (negated, {"mode": "max"}),
            (negated_before, {"mode": "max"}),
            (error_of_score, {"mode": "min"}),
            (loss_that_grows, {"mode": "max"}),
            (unnamed, {"mode": "max"}),
            (of_both, {"mode": "max"}),
        ],
        3,
    ),
)
def test_other_metrics_are_fine(step, chosen, tmp_path):
    assert not trained(tmp_path, step, **chosen)
