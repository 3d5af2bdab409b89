"""GS322, judged from trainings that keep their weights in different ways."""

import copy

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.watching import findings_of, findings_of_script

DECAY = 0.9


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def said(tmp_path, after_step, *, model=None, steps=6):
    model = model or network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
            after_step(step)

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS322"]


def data(model):
    return [one.data for one in model.parameters()]


def state(model):
    return list(model.state_dict().values())


def copies(model):
    return [one.detach().clone() for one in model.parameters()]


@torch.no_grad()
def multiplied(kept, weights):
    for one, weight in zip(kept, weights, strict=True):
        one.mul_(DECAY).add_(weight, alpha=1 - DECAY)


@torch.no_grad()
def summed(kept, weights):
    for one, weight in zip(kept, weights, strict=True):
        one.mul_(DECAY).add_((1 - DECAY) * weight)


@torch.no_grad()
def moved(kept, weights):
    for one, weight in zip(kept, weights, strict=True):
        one.lerp_(weight, 1 - DECAY)


@torch.no_grad()
def subtracted(kept, weights):
    for one, weight in zip(kept, weights, strict=True):
        one.sub_((1 - DECAY) * (one - weight))


def written(kept, weights):
    for one, weight in zip(kept, weights, strict=True):
        one.data.copy_(one.data * DECAY + weight.data * (1 - DECAY))


@torch.no_grad()
def at_once(kept, weights):
    torch._foreach_mul_(kept, DECAY)
    torch._foreach_add_(kept, weights, alpha=1 - DECAY)


@torch.no_grad()
def moved_at_once(kept, weights):
    torch._foreach_lerp_(kept, weights, 1 - DECAY)


AVERAGES = [multiplied, summed, moved, subtracted, written, at_once, moved_at_once]


@pytest.mark.parametrize("average", some_on_push(AVERAGES, {0}))
@pytest.mark.parametrize("keep", [data, state])
def test_average_that_is_no_copy_is_an_error(keep, average, tmp_path):
    model = network()
    kept = keep(model)
    (found,) = said(tmp_path, lambda _: average(kept, list(model.parameters())), model=model)
    assert found.severity == "error"
    assert dict(found.evidence)["parameters"] == 4


@pytest.mark.parametrize("average", some_on_push(AVERAGES, {0}))
def test_average_of_copies_is_fine(average, tmp_path):
    model = network()
    kept = copies(model)
    assert not said(tmp_path, lambda _: average(kept, list(model.parameters())), model=model)


def test_average_shrinks_the_weights_by_the_square_of_its_rate(tmp_path):
    model = network()
    kept, norms = data(model), []

    def average(_):
        before = float(model[0].weight.detach().double().norm())
        multiplied(kept, list(model.parameters()))
        norms.append(float(model[0].weight.detach().double().norm()) / before)

    (found,) = said(tmp_path, average, model=model)
    assert norms[0] == pytest.approx(1 - (1 - DECAY) ** 2, rel=1e-6)
    assert "0.99" in found.message


@pytest.mark.nightly
def test_average_that_shares_a_part_is_fine(tmp_path):
    model = network()
    kept = [*data(model[0]), *copies(model[2])]
    assert not said(tmp_path, lambda _: moved(kept, list(model.parameters())), model=model)


@torch.no_grad()
def decayed(weights):
    for one in weights:
        one.add_(one, alpha=-0.01)
        one.sub_(0.01 * one)
        one.mul_(1 - 0.01)
        one.copy_(one * 0.5 + torch.ones_like(one) * 0.5)
        one.copy_(one / one.norm())


@pytest.mark.nightly
def test_weight_decay_by_hand_is_fine(tmp_path):
    model = network()
    assert not said(tmp_path, lambda _: decayed(list(model.parameters())), model=model)


def test_state_that_is_restored_without_a_copy_is_an_error(tmp_path):
    model, best = network(), {}

    def after(step):
        if step == 1:
            best.update(model.state_dict())
        if step == 4:
            model.load_state_dict(best)

    (found,) = said(tmp_path, after, model=model)
    assert (dict(found.evidence)["restored"], found.severity) == (True, "error")
    assert "3 steps later" in found.message


@pytest.mark.parametrize("when", [1, 4])
def test_copied_state_is_fine(when, tmp_path):
    model, best = network(), {}

    def after(step):
        if step == 1:
            best.update(copy.deepcopy(model.state_dict()))
        if step == when:
            model.load_state_dict(best)

    assert not said(tmp_path, after, model=model)


def test_state_that_is_restored_at_once_is_fine(tmp_path):
    model = network()
    assert not said(tmp_path, lambda _: model.load_state_dict(model.state_dict()), model=model)


@pytest.mark.nightly
def test_state_of_which_a_part_is_replaced_is_fine(tmp_path):
    model, before = network(), {}

    def after(step):
        if step == 1:
            before.update(model.state_dict())
            before["0.weight"] = torch.zeros(8, 6)
        if step == 4:
            model.load_state_dict(before)

    assert not said(tmp_path, after, model=model)


SCRIPT = """
import torch
from torch import nn


class Average:
    def __init__(self, model):
        self.kept = {name: one for name, one in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for name, one in model.named_parameters():
            self.kept[name].lerp_(one, 0.1)


model = nn.Linear(6, 1)
average = Average(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()
    average.update(model)
"""


def test_line_that_keeps_the_weights_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (found,) = (one for one in findings_of_script(script, tmp_path) if one.rule == "GS322")
    assert found.location.source.startswith("self.kept = {")
    assert "self.kept shares" in found.message


class Renamed(nn.Linear):
    """Passes the arguments of loading on by their names, as torch calls them."""

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, *lists):
        missing, unexpected, errors = lists
        super()._load_from_state_dict(
            state_dict=state_dict,
            prefix=prefix,
            local_metadata=local_metadata,
            strict=strict,
            missing_keys=missing,
            unexpected_keys=unexpected,
            error_msgs=errors,
        )


@pytest.mark.nightly
@pytest.mark.parametrize(("kept", "count"), [(copy.deepcopy, 0), (dict, 1)])
def test_a_module_may_load_by_keywords(tmp_path, kept, count):
    model = Renamed(6, 1)
    best = {}

    def after_step(step):
        if step == 0:
            best["state"] = kept(model.state_dict())
        if step == 4:
            model.load_state_dict(best["state"])

    assert len(said(tmp_path, after_step, model=model)) == count


class Agent:
    """A network and a target that is updated from it."""

    def __init__(self, make_target):
        self.q = network()
        self.target = make_target(self.q)

    def sync(self):
        self.target.load_state_dict(self.q.state_dict())


@pytest.mark.parametrize("make_target", [lambda q: q, copy.copy])
def test_target_network_that_is_no_copy_is_an_error(make_target, tmp_path):
    agent = Agent(make_target)
    (found,) = said(tmp_path, lambda step: step % 3 or agent.sync(), model=agent.q)
    assert (found.severity, dict(found.evidence)["parameters"]) == ("error", 4)
    assert "target is no copy" in found.message


def test_line_that_makes_a_target_no_copy_is_named(tmp_path):
    script = tmp_path / "policies.py"
    script.write_text(POLICIES)
    (found,) = (one for one in findings_of_script(script, tmp_path) if one.rule == "GS322")
    assert found.location.source == "old_policy = policy"


POLICIES = """
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 2)
old_policy = policy
adam = torch.optim.Adam(policy.parameters())
for step in range(6):
    with torch.no_grad():
        before = old_policy(torch.randn(8, 4)).log_softmax(1)
    loss = (policy(torch.randn(8, 4)).log_softmax(1) - before).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 2:
        old_policy.load_state_dict(policy.state_dict())
"""


@pytest.mark.parametrize("make_target", some_on_push([copy.deepcopy, lambda _: network()], 2))
def test_target_network_that_is_a_copy_is_fine(make_target, tmp_path):
    agent = Agent(make_target)
    assert not said(tmp_path, lambda _: agent.sync(), model=agent.q)


@pytest.mark.nightly
def test_network_that_takes_over_its_own_state_is_fine(tmp_path):
    """As a check that a state can be loaded does, and a state with a few replaced entries."""
    model = network()

    def reload(_):
        model.load_state_dict(model.state_dict())
        state = model.state_dict()
        model.load_state_dict(state)

    assert not said(tmp_path, reload, model=model)
