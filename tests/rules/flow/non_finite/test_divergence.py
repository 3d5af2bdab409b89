import dataclasses
import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from gradscope.rules.context import RuleContext
from gradscope.rules.engine import judge
from gradscope.rules.helpers.updates import Divergence
from gradscope.rules.settings import Settings
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push


def network():
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )


def trained(lr, steps, *, scale=1.0, optimizer="sgd"):
    """A small regression after some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    x = torch.randn(32, 8)
    target = target_from_objects(
        model,
        (x, scale * x[:, :1]),
        nn.functional.mse_loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        seed=0,
    )
    trial = Trial(steps=steps, optimizer=optimizer, lr=lr, probe_steps=0)
    return record(target, trial=trial, eager=False, command="check")


def codes(recording, **settings):
    return [one.rule for one in judge(recording, Settings(**settings)).findings]


def test_growths_are_those_of_a_plain_loop():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    x = torch.randn(32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    norms = []
    for _ in range(4):
        norms.append([layer.weight.norm().item() for layer in model[::2]])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :1]).backward()
        optimizer.step()
    expected = [
        sorted((b - a) / a for a, b in zip(before, after, strict=True))[1]
        for before, after in pairwise(norms)
    ]
    assert Divergence(RuleContext(trained(0.5, 3))).growths == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "lr"), some_on_push([("sgd", 3.0), ("sgd", 1e4), ("adam", 1e4)], {0, 1})
)
def test_steps_that_drive_the_weights_off_are_the_one_cause(optimizer, lr):
    recording = trained(lr, 20, scale=3.0, optimizer=optimizer)
    (found,) = judge(recording).findings
    assert (found.rule, found.severity) == ("GS108", "error")
    assert {one.rule for one in found.consequences} <= {"GS101", "GS103", "GS104", "GS105"}
    # Left to themselves, the consequences are findings.
    assert set(codes(recording, ignore=("GS108",))) <= {"GS101", "GS103", "GS104", "GS105"}


@pytest.mark.parametrize(
    ("optimizer", "lr"), some_on_push([("sgd", 0.01), ("sgd", 0.1), ("adam", 1e-3)], {0, 1})
)
def test_training_that_goes_well_is_left_alone(optimizer, lr):
    assert codes(trained(lr, 20, optimizer=optimizer)) == []


def with_losses(recording, losses):
    steps = [
        dataclasses.replace(step, loss=loss)
        for step, loss in zip(recording.steps, losses, strict=True)
    ]
    return dataclasses.replace(recording, steps=tuple(steps))


@pytest.mark.parametrize(
    ("losses", "rose"),
    [
        ([1.0, 5.0, 9.9], False),
        ([1.0, 11.0, 0.1], True),
        ([1.0, 0.5, math.inf], True),
        ([1.0, 0.5, math.nan], True),
        ([math.nan, math.nan, math.nan], False),  # broken before any step was made
        ([-1.0, -5.0, -9.0], False),
        ([0.0, 0.0, 0.0], False),
        ([None, None, None], False),
    ],
)
def test_a_loss_rises_tenfold_or_is_no_number_any_more(losses, rose):
    recording = with_losses(trained(0.01, 2), losses)
    assert Divergence(RuleContext(recording)).loss_rose is rose


def test_weights_that_grow_while_the_loss_falls_are_no_divergence():
    recording = trained(3.0, 20, scale=3.0)
    count = len(recording.steps)
    falling = with_losses(recording, [1.0 / (1 + step) for step in range(count)])
    assert Divergence(RuleContext(falling)).step_beyond(0.3) is None
    assert Divergence(RuleContext(recording)).step_beyond(0.3) is not None


def test_data_that_is_no_number_at_a_later_step_is_not_the_optimizers_fault():
    recording = trained(0.01, 3)
    broken = with_losses(recording, [1.0, 0.9, 0.8, math.nan])
    assert Divergence(RuleContext(broken)).step_beyond(0.3) is None
