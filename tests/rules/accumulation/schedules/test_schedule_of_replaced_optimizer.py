"""GS325, judged from loops as users write them."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from tests.nightly import some_on_push
from tests.rules import watching


class Wrapped(torch.optim.Optimizer):
    """Steps another optimizer, whose groups it shares."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure=None):
        self.inner.step(closure)


def step(optimizer, model):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def trained(tmp_path, *, second, late, after=lambda new: lambda: None, other_model=False):
    """Train for 4 steps with SGD, then with a second optimizer and the same schedule."""
    torch.manual_seed(0)
    model, other = nn.Linear(4, 1), nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        scheduler = ExponentialLR(sgd, gamma=0.9)
        for _ in range(4):
            step(sgd, model)
            scheduler.step()
        trains = other if other_model else model
        new = second(sgd, trains)
        changes = after(new)
        for at in range(4):
            step(new, trains)
            changes()
            if at < late:
                scheduler.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS325"]


def own_schedule(new):
    """Return what steps a schedule of the second optimizer."""
    return ExponentialLR(new, gamma=0.9).step


def by_hand(new):
    """Return what changes the rate of the second optimizer."""

    def change():
        new.param_groups[0]["lr"] *= 0.9

    return change


def adam(_, model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


@pytest.mark.parametrize("late", [3, 4])
def test_a_schedule_of_the_optimizer_before_is_found(tmp_path, late):
    (found,) = trained(tmp_path, second=adam, late=late)
    assert found.severity == "warning"
    assert found.location.source == "scheduler.step()"
    evidence = dict(found.evidence)
    assert (evidence["late_scheduler_steps"], evidence["steps_of_new_optimizer"]) == (late, 4)


@pytest.mark.parametrize(
    ("second", "loop"),
    some_on_push(
        [
            (adam, {"late": 2}),
            (adam, {"late": 4, "after": own_schedule}),
            (adam, {"late": 4, "other_model": True}),
            (adam, {"late": 4, "after": by_hand}),
            (lambda sgd, _: sgd, {"late": 4}),
            (lambda sgd, _: Wrapped(sgd), {"late": 4}),
        ],
        3,
    ),
    ids=["two late steps", "own schedule", "other weights", "by hand", "one optimizer", "wrapper"],
)
def test_other_schedules_are_fine(tmp_path, second, loop):
    assert not trained(tmp_path, second=second, **loop)


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_a_schedule_of_an_optimizer_that_never_steps_is_found(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)

    def train():
        scheduler = ExponentialLR(torch.optim.SGD(model.parameters(), lr=0.1), gamma=0.9)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            scheduler.step()

    found = [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS325"]
    assert [one.count for one in found] == [5]
