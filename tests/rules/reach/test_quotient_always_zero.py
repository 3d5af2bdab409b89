"""GS220, judged from models that are told a number."""

import math

import pytest
import torch
from torch import nn

import gradscope
from tests.nightly import some_on_push
from tests.rules import watching

STEPS = 50


def waves(level):
    """Return a sine and a cosine of a number."""
    angle = level[:, None] * torch.tensor([1.0, math.pi])
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def floor_divided(t):
    return torch.div(t, STEPS, rounding_mode="floor").view(-1, 1).float().expand(-1, 4)


class Told(nn.Module):
    """A network whose hidden layer gets a number as well."""

    def __init__(self, level):
        super().__init__()
        self.level = level
        self.into, self.of_level, self.out = nn.Linear(3, 8), nn.Linear(4, 8), nn.Linear(8, 3)
        self.table = nn.Embedding(STEPS, 4)

    def forward(self, values, t):
        level = self.level(t) if self.level is not None else self.table(t // STEPS)
        return self.out(torch.tanh(self.into(values) + self.of_level(level)))


def trained(tmp_path, level, times=lambda count: torch.randint(0, STEPS, (count,)), steps=5):
    torch.manual_seed(0)
    model = Told(level)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)

    def train():
        for _ in range(steps):
            values = torch.randn(32, 3)
            loss = (model(values, times(32)) - values).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()

    return [one for one in watching.findings_of(train, tmp_path) if one.rule == "GS220"]


@pytest.mark.parametrize(
    "level",
    some_on_push(
        [
            lambda t: waves(t // STEPS),
            lambda t: waves(t.floor_divide(STEPS)),
            lambda t: (t // STEPS).unsqueeze(-1).to(torch.float32).expand(-1, 4),
            floor_divided,
        ],
        3,
    ),
    ids=["waves", "by name", "converted", "rounding mode"],
)
def test_quotients_that_are_always_zero_are_found(level, tmp_path):
    (found,) = trained(tmp_path, level)
    evidence = dict(found.evidence)
    assert (found.severity, evidence["divisor"]) == ("error", STEPS)
    assert "//" in found.message
    assert "3 captured steps" in found.message
    assert STEPS / 2 <= evidence["largest"] < STEPS


def positions(count):
    return torch.arange(count)


def small(count):
    return torch.randint(0, STEPS // 4, (count,))


def up_to_the_divisor(count):
    return torch.randint(0, STEPS + 1, (count,))


@pytest.mark.parametrize(
    ("level", "chosen"),
    some_on_push(
        [
            (lambda t: waves(t / STEPS), {}),
            (None, {}),
            (lambda t: waves(t // STEPS), {"times": positions}),
            (lambda t: waves(t // STEPS), {"times": small}),
            (lambda t: waves(t // STEPS), {"times": up_to_the_divisor}),
            (lambda t: waves(t // STEPS), {"steps": 2}),
            (lambda t: waves(t // (STEPS // 5)), {}),
        ],
        3,
    ),
    ids=["true", "index", "positions", "small", "up to it", "two steps", "coarse"],
)
def test_other_quotients_are_fine(level, chosen, tmp_path):
    assert not trained(tmp_path, level, **chosen)


def inspected(level, t):
    torch.manual_seed(0)
    values = torch.randn(len(t), 3)

    def loss(output, _):
        return (output - values).square().mean()

    found = gradscope.inspect(Told(level), (values, t), loss).findings
    return [one for one in found if one.rule == "GS220"]


def of_batch(count, below=STEPS):
    return torch.randint(0, below, (count,), generator=torch.Generator().manual_seed(1))


def test_quotients_of_an_inspected_batch_are_a_warning():
    (found,) = inspected(lambda t: waves(t // STEPS), of_batch(32))
    assert found.severity == "warning"
    assert dict(found.evidence)["numbers"] == 32


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("level", "t"),
    some_on_push(
        [
            (lambda t: waves(t / STEPS), of_batch(32)),
            (lambda t: waves(t // STEPS), of_batch(15)),
            (lambda t: waves(t // STEPS), of_batch(32, STEPS // 4)),
            (lambda t: waves(t // STEPS), torch.arange(32)),
            (lambda t: waves(t // 5), of_batch(32)),
            (None, of_batch(32)),
        ],
        3,
    ),
    ids=["true", "few", "small", "positions", "coarse", "index"],
)
def test_other_quotients_of_a_batch_are_fine(level, t):
    assert not inspected(level, t)
