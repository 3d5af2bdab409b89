"""Steps before the judged one equal those of a plain loop."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.nightly import some_on_push
from tests.training.looping import SEED, looped, seen_in, watched


class Net(nn.Module):
    """Has statistics that every forward moves, and masks that every forward draws."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.4)
        self.head = nn.Linear(16, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.head(self.drop(torch.relu(self.norm(self.inner(x))))) / self.calls


class PageTexts(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, sparse=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.table(x.long()).mean(1))


def loss(model, batch):
    x, y = batch
    return functional.cross_entropy(model(x), y)


def pairs(count=40):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 8, generator=generator)
    return TensorDataset(x, (x.sum(1) > 0).long())


OPTIMIZERS = {
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01),
    "groups": lambda m: torch.optim.SGD(
        [{"params": m.inner.parameters(), "lr": 0.5}, {"params": m.head.parameters()}], lr=0.01
    ),
}


def assert_equal(recording, expected):
    got = seen_in(recording)
    assert got.losses == expected.losses
    for norms, others in zip(got.norms, expected.norms, strict=True):
        assert norms == pytest.approx(others, rel=1e-6, nan_ok=True)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("make", some_on_push(OPTIMIZERS.values(), 2), ids=OPTIMIZERS)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_steps_are_those_of_a_plain_loop(net, make, mode):
    net.train(mode == "train")
    other = copy.deepcopy(net)
    loader = DataLoader(pairs(), batch_size=16)  # 16, 16 and 8, and from the beginning again
    expected = looped(other, loader, loss, make(other), 7)
    assert_equal(watched(net, loader, loss, make(net), steps=7), expected)


def test_shuffled_loader_gives_the_order_of_a_plain_loop(net):
    other, make = copy.deepcopy(net), OPTIMIZERS["momentum"]
    torch.manual_seed(3)
    recording = watched(
        net, DataLoader(pairs(), batch_size=16, shuffle=True), loss, make(net), steps=7
    )
    torch.manual_seed(3)
    loader = DataLoader(pairs(), batch_size=16, shuffle=True)
    assert_equal(recording, looped(other, loader, loss, make(other), 7))


def test_one_batch_serves_every_step(net):
    other, make = copy.deepcopy(net), OPTIMIZERS["adamw"]
    batch = pairs(16).tensors
    recording = watched(net, None, loss, make(net), batch=batch, steps=5)
    assert_equal(recording, looped(other, [batch], loss, make(other), 5))


@pytest.mark.parametrize("name", some_on_push(["AdamW", "adamw", "torch.optim.adamw"], {0, 1}))
def test_named_optimizer_makes_the_steps_in_place_of_the_targets(net, name):
    other = copy.deepcopy(net)
    expected = looped(
        other, pairs_loader(), loss, torch.optim.AdamW(other.parameters(), lr=0.02), 4
    )
    own = OPTIMIZERS["momentum"](net)
    recording = watched(net, pairs_loader(), loss, own, steps=4, optimizer=name, lr=0.02)
    assert_equal(recording, expected)
    assert recording.target.optimizer == "AdamW(lr=0.02)"


def pairs_loader():
    return DataLoader(pairs(), batch_size=16)


def test_learning_rate_alone_is_that_of_the_targets_optimizer_in_all_groups(net):
    make, other = OPTIMIZERS["groups"], copy.deepcopy(net)
    changed = make(other)
    for group in changed.param_groups:
        group["lr"] = 0.25
    expected = looped(other, pairs_loader(), loss, changed, 4)
    own = make(net)
    recording = watched(net, pairs_loader(), loss, own, steps=4, lr=0.25)
    assert_equal(recording, expected)
    assert recording.target.optimizer == "SGD(lr=0.25)"
    assert [group["lr"] for group in own.param_groups] == [0.5, 0.01]


@pytest.mark.parametrize(("trial", "rate"), [({}, 1e-3), ({"lr": 0.05}, 0.05)])
def test_without_an_optimizer_it_is_adam(net, trial, rate):
    other = copy.deepcopy(net)
    expected = looped(other, pairs_loader(), loss, torch.optim.Adam(other.parameters(), lr=rate), 4)
    recording = watched(net, pairs_loader(), loss, steps=4, **trial)
    assert_equal(recording, expected)
    assert recording.steps[0].optimizer == f"Adam(lr={rate:g})"


def test_sparse_gradients():
    torch.manual_seed(0)
    net = PageTexts()
    other = copy.deepcopy(net)
    x = torch.randint(20, (12, 4), generator=torch.Generator().manual_seed(2))
    batches = [(x[:6], torch.arange(6) % 3), (x[6:], torch.arange(6) % 3)]
    recording = watched(net, batches, loss, torch.optim.SGD(net.parameters(), lr=0.5), steps=5)
    expected = looped(other, batches, loss, torch.optim.SGD(other.parameters(), lr=0.5), 5)
    assert_equal(recording, expected)


def test_without_a_seed_random_numbers_run_on(net):
    other, make = copy.deepcopy(net), OPTIMIZERS["momentum"]
    batches = list(pairs_loader())
    torch.manual_seed(9)
    got = seen_in(watched(net, batches, loss, make(net), seed=None, steps=4))
    torch.manual_seed(9)
    optimizer, losses = make(other), []
    for batch in [*batches, *batches[:2]]:
        other.zero_grad()
        value = loss(other, batch)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert got.losses == losses


def test_judged_step_of_none_is_the_first(net):
    batch = pairs(16).tensors
    recordings = [
        watched(copy.deepcopy(net), loader, loss, batch=batch, probe_steps=3, steps=0)
        for loader in (None, [batch, None])
    ]
    assert [step.kind for step in recordings[0].steps] == ["step", "probe", "probe", "probe"]
    assert seen_in(recordings[0]) == seen_in(recordings[1])


def test_probing_goes_on_from_the_judged_step_with_its_batch_and_random_numbers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.4), nn.Linear(16, 3))
    make, other = OPTIMIZERS["adamw"], copy.deepcopy(net)
    recording = watched(net, pairs_loader(), loss, make(net), steps=4, probe_steps=2)
    assert [step.kind for step in recording.steps] == ["training"] * 4 + ["step"] + ["probe"] * 2
    assert [step.index for step in recording.steps] == list(range(7))
    optimizer = make(other)
    losses = looped(other, pairs_loader(), loss, optimizer, 4).losses
    judged = [*pairs_loader(), *pairs_loader()][4]
    for _ in range(2):
        optimizer.step()
        other.zero_grad()
        torch.manual_seed(SEED + 4)
        value = loss(other, judged)
        value.backward()
        losses.append(value.item())
    assert [step.loss for step in recording.steps] == losses
