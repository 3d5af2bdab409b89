"""Training loops that order their calls wrongly, watched as they are: each is told, at its line."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

STEPS = 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def net(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))


def batch(rows: int = 16):
    return torch.randn(rows, 6), torch.arange(rows) % 3


def loss_of(model):
    features, target = batch()
    return functional.cross_entropy(model(features), target)


class Trainer:
    """Zeroes once an epoch, far from its backward."""

    def __init__(self):
        self.model = net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train_step(self):
        loss_of(self.model).backward()  # GS301 error
        self.optimizer.step()

    def fit(self):
        for _ in range(2):
            self.optimizer.zero_grad()
            for _ in range(20):
                self.train_step()


def gradients_that_the_model_does_not_zero():
    model, margin = net(), nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([*model.parameters(), margin], lr=0.1)
    for _ in range(STEPS):
        model.zero_grad()
        features, target = batch()
        functional.cross_entropy(model(features) + margin, target).backward()  # GS301 error
        optimizer.step()


def weights_moved_by_hand():
    model = net()
    for _ in range(STEPS):
        loss_of(model).backward()  # GS301 error
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


def a_critic_that_is_never_zeroed():
    generator, critic = nn.Linear(4, 6), net(1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(20):
        fake = generator(torch.randn(16, 4))
        critic(fake.detach()).mean().backward()  # GS301 error
        of_critic.step()
        of_generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()


def micro_batches_zeroed_one_by_one():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for position in range(16):
        optimizer.zero_grad()  # GS302 error
        (loss_of(model) / 4).backward()
        if position % 4 == 3:
            optimizer.step()


def gradients_set_to_none_by_hand():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss_of(model).backward()
        model.zero_grad()  # GS302 error
        optimizer.step()


def a_loop_that_steps_twice():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        optimizer.step()  # GS306 warning


def a_loss_that_is_added_to_those_before():
    layer = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    total = torch.zeros(())
    for _ in range(45):
        total = total + loss_of(layer)  # GS309 error
        optimizer.zero_grad()
        total.backward(retain_graph=True)
        optimizer.step()


def an_epoch_of_two_and_a_half_windows():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(*batch(160)), batch_size=16)
    for _ in range(3):
        for position, (features, target) in enumerate(loader):
            loss = functional.cross_entropy(model(features), target)
            (loss / 4).backward()  # GS305 warning
            if position % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()


def means_of_unequal_numbers_of_tokens():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        for tokens in (2, 30, 4, 9):
            features, target = batch(32)
            target[tokens:] = -100
            loss = functional.cross_entropy(model(features), target)
            (loss / 4).backward()  # GS304 warning
        optimizer.step()
        optimizer.zero_grad()


LOOPS = [
    gradients_that_the_model_does_not_zero,
    weights_moved_by_hand,
    a_critic_that_is_never_zeroed,
    micro_batches_zeroed_one_by_one,
    gradients_set_to_none_by_hand,
    a_loop_that_steps_twice,
    a_loss_that_is_added_to_those_before,
    an_epoch_of_two_and_a_half_windows,
    means_of_unequal_numbers_of_tokens,
]


def expected(code):
    """Return the rule, level and line of the comment in the source of a loop."""
    lines, start = inspect.getsourcelines(code)
    marked = [
        (n, line.partition("# GS")[2]) for n, line in enumerate(lines, start) if "# GS" in line
    ]
    ((number, mark),) = marked
    rule, severity = mark.split()
    return [(f"GS{rule}", severity, number)]


def told(loop, folder):
    found = [one for one in findings_of(loop, folder) if one.rule.startswith("GS3")]
    return [(one.rule, one.severity, one.location.line) for one in found]


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 4), ids=[loop.__name__ for loop in LOOPS])
def test_a_wrong_loop_is_told_at_its_line(loop, tmp_path):
    assert told(loop, tmp_path) == expected(loop)


@pytest.mark.nightly
def test_a_loop_in_a_class_is_told_at_its_line(tmp_path):
    assert told(lambda: Trainer().fit(), tmp_path) == expected(Trainer)
