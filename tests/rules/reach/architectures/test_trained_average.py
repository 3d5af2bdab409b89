"""GS211: moving averages of a network that the optimizer trains, too."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def told(tmp_path, *, decay=0.95, without_grad=False, average=None, frozen=False):
    """Train a network against a moving average of itself."""
    torch.manual_seed(0)
    online = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    target = copy.deepcopy(online).requires_grad_(not frozen)
    optimizer = torch.optim.SGD([*online.parameters(), *target.parameters()], lr=0.1)

    @torch.no_grad()
    def follow():
        for own, other in zip(target.parameters(), online.parameters(), strict=True):
            if average is not None:
                average(own, other)
            else:
                own.mul_(decay).add_(other, alpha=1 - decay)

    def train():
        for _ in range(8):
            x = torch.randn(16, 6)
            with torch.set_grad_enabled(not without_grad):
                goal = target(x + 0.1 * torch.randn(16, 6))
            loss = functional.mse_loss(online(x), goal) + online(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow()

    found = findings_of(train, tmp_path)
    return [one for one in found if one.rule == "GS211" and "moving average" in one.message]


def assigned(own, other):
    own.data = 0.97 * own.data + 0.03 * other.data


WRITES = {
    "assigned": assigned,
    "two factors": None,
    "lerp": lambda own, other: own.lerp_(other, 0.05),
    "data": lambda own, other: own.data.copy_(0.99 * own.data + 0.01 * other.data),
}


@pytest.mark.parametrize("name", some_on_push(WRITES, 2))
def test_an_average_that_the_optimizer_trains_is_a_warning(tmp_path, name):
    (found,) = told(tmp_path, average=WRITES[name])
    assert found.severity == "warning"
    assert dict(found.evidence)["tensors"] == 4


FINE = {
    "without grad": {"without_grad": True},
    "frozen": {"frozen": True},
    "frozen and assigned": {"frozen": True, "average": assigned},
    "equals": {"decay": 0.5},
    "penalty": {"average": lambda own, other: own.mul_(0.999)},
}


@pytest.mark.parametrize("name", some_on_push(FINE, 3))
def test_other_averages_are_fine(tmp_path, name):
    assert not told(tmp_path, **FINE[name])


@pytest.mark.parametrize(("decay", "is_found"), [(0.89, False), (0.91, True)])
def test_only_slow_averages_are_targets(tmp_path, decay, is_found):
    assert bool(told(tmp_path, decay=decay)) == is_found
