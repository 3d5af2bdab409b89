"""A recorded training restores everything bit for bit."""

import copy
import random

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gradscope.errors import UserCodeError
from tests.nightly import some_on_push
from tests.training.looping import watched

DATA = TensorDataset(torch.linspace(-1, 1, 96).view(24, 4), torch.arange(24) % 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(8, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append(len(self.seen))
        self.mean = x.mean()
        return self.head(self.drop(self.norm(self.inner(x))))


class WeightedLoss(nn.Module):
    """Has a parameter of its own, which the optimizer trains too."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, output, target):
        return self.scale * functional.cross_entropy(output, target)


def tensors_of(optimizer):
    return {
        (group, position, name): value
        for group, one in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(one["params"])
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def state_of(net, loss, optimizer):
    """Return copies of all that training could change."""
    return copy.deepcopy(
        {
            "weights": [*net.state_dict().values(), *loss.state_dict().values()],
            "gradients": [p.grad for p in (*net.parameters(), *loss.parameters())],
            "attributes": (net.seen, net.training, hasattr(net, "mean")),
            "state": tensors_of(optimizer),
            "groups": [
                {name: value for name, value in group.items() if name != "params"}
                for group in optimizer.param_groups
            ],
            "random": (torch.get_rng_state(), random.getstate()),
        }
    )


def assert_same(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for item, another in zip(one, other, strict=True):
            assert_same(item, another)
    else:
        assert one == other


@pytest.fixture
def trained():
    """A model in the middle of its training, with gradients and an optimizer's state."""
    torch.manual_seed(0)
    net, loss = Net(), WeightedLoss()
    optimizer = torch.optim.AdamW([*net.parameters(), *loss.parameters()], lr=0.01)
    x, y = DATA.tensors
    loss(net(x), y).backward()
    optimizer.step()
    del net.mean
    return net, loss, optimizer


@pytest.mark.parametrize(
    "trial",
    some_on_push(
        [
            {},
            {"lr": 0.5},
            {"optimizer": "sgd"},
            {"optimizer": "rmsprop", "lr": 0.1, "probe_steps": 2},
            {"optimizer": "adagrad"},
        ],
        {0, 2},
    ),
    ids=str,
)
def test_training_leaves_model_loss_and_optimizer_as_they_were(trained, trial):
    net, loss, optimizer = trained
    before = state_of(net, loss, optimizer)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    loader = DataLoader(DATA, batch_size=8, generator=torch.Generator())
    recording = watched(net, loader, loss, optimizer, seed=3, steps=6, **trial)
    assert recording.steps[6].kind == "step"
    assert_same(state_of(net, loss, optimizer), before)
    after = [p for group in optimizer.param_groups for p in group["params"]]
    assert all(one is other for one, other in zip(held, after, strict=True))


def test_so_does_training_that_fails(trained):
    net, loss, optimizer = trained
    before = state_of(net, loss, optimizer)
    batches = [DATA[:4], DATA[:4], (torch.ones(2, 9), torch.zeros(2).long())]
    with pytest.raises(UserCodeError):
        watched(net, batches, loss, optimizer, steps=6)
    assert_same(state_of(net, loss, optimizer), before)


def test_the_loss_parameter_in_the_optimizer_is_trained(trained):
    net, loss, optimizer = trained
    seen = []
    loss.register_forward_pre_hook(lambda module, _: seen.append(module.scale.item()))
    watched(net, DataLoader(DATA, batch_size=8), loss, optimizer, steps=4)
    assert len(set(seen)) == 5
