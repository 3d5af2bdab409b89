"""GS317, in loops of two networks that play each other, and of attacks on the inputs."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.nightly import some_on_push
from tests.rules.accumulation.loops.two_players import LOOPS, SICK, players, updated
from tests.rules.watching import findings_of


def told(name, folder, steps=8):
    found = findings_of(lambda: players(name, steps), folder)
    return [one for one in found if one.rule == "GS317"]


def backwards(name):
    loop = updated if name == "leaking_in_a_helper" else LOOPS[name]
    lines, start = inspect.getsourcelines(loop)
    return [number for number, line in enumerate(lines, start) if ".backward()" in line]


@pytest.mark.parametrize("name", some_on_push(SICK, 2))
def test_the_backward_that_leaves_the_gradients_is_named(name, tmp_path):
    (found,) = told(name, tmp_path)
    assert found.severity == "error"
    assert found.location.line == backwards(name)[SICK[name]]
    entries = [one for one in found.related if "not detached" in one.message]
    # Only in `upstream` the loss of one network takes what the leaked-to network made.
    assert [one.source for one in entries] == ["logits = self.judge(points)"] * (name == "upstream")
    assert len(found.related) == 2 + len(entries)


@pytest.mark.parametrize("name", some_on_push(sorted(LOOPS.keys() - SICK), 3))
def test_loops_that_keep_the_losses_apart_are_fine(name, tmp_path):
    assert not told(name, tmp_path)


def test_two_steps_are_near_but_may_be_chance(tmp_path):
    assert not told("leaking", tmp_path, steps=2)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def batch():
    x = torch.randn(8, 6)
    return x, x[:, :3].argmax(1)


def nudged(model, x, y):
    """Return inputs for which the loss is higher, and leave gradients in the model."""
    x = x.clone().requires_grad_(True)
    cross_entropy(model(x), y).backward()
    return (x + 0.1 * x.grad.sign()).detach()


def attack(model, adam, x, y):
    adam.zero_grad()
    cross_entropy(model(nudged(model, x, y)), y).backward()


def attack_before_zero(model, adam, x, y):
    x = nudged(model, x, y)
    adam.zero_grad()
    cross_entropy(model(x), y).backward()


def attack_by_derivatives(model, adam, x, y):
    adam.zero_grad()
    x.requires_grad_(True)
    (slope,) = torch.autograd.grad(cross_entropy(model(x), y), x)
    cross_entropy(model((x + 0.1 * slope.sign()).detach()), y).backward()


def attack_of_a_frozen_model(model, adam, x, y):
    adam.zero_grad()
    model.requires_grad_(False)
    x = nudged(model, x, y)
    model.requires_grad_(True)
    cross_entropy(model(x), y).backward()


def training_in_each_pass(model, adam, x, y):
    """The same perturbation takes part in all passes, each with its share of the loss."""
    adam.zero_grad()
    shift = torch.zeros_like(x).requires_grad_(True)
    for _ in range(3):
        (cross_entropy(model(x + shift), y) / 3).backward()
        shift.data += 0.1 * shift.grad.sign()
        shift.grad = None


def penalty_on_slopes(model, adam, x, y):
    adam.zero_grad()
    point = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(model(point).sum(), point, create_graph=True)
    (slope.norm(dim=1) - 1).square().mean().backward()
    cross_entropy(model(x), y).backward()


def micro_batches(model, adam, x, y):
    adam.zero_grad()
    for part, classes in zip(x.split(4), y.split(4), strict=True):
        (cross_entropy(model(part), classes) / 2).backward()


FINE = [
    attack_before_zero,
    attack_by_derivatives,
    attack_of_a_frozen_model,
    training_in_each_pass,
    penalty_on_slopes,
    micro_batches,
]


def attacked(step, folder, steps=8):
    def loop():
        model = net()
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(steps):
            step(model, adam, *batch())
            adam.step()

    return [one for one in findings_of(loop, folder) if one.rule == "GS317"]


def test_an_attack_that_fills_the_gradients_of_the_model_is_a_warning(tmp_path):
    (found,) = attacked(attack, tmp_path)
    assert found.severity == "warning" and found.count == 8
    assert found.location.source == "cross_entropy(model(x), y).backward()"
    assert found.location.function == "nudged"
    assert "autograd.grad" in found.remedy


@pytest.mark.parametrize("step", some_on_push(FINE, 3))
def test_other_passes_for_inputs_are_fine(step, tmp_path):
    assert not attacked(step, tmp_path)


def test_two_attacks_are_near_but_may_be_chance(tmp_path):
    assert not attacked(attack, tmp_path, steps=2)
