"""Weights that change between steps: by an average of earlier ones, or by something else."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of, findings_of_script, recording_of


def training(between, *, steps=40, every=8):
    """Train a model, and call something between steps: it gets the model, an average, the start."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    average = copy.deepcopy(model)
    start = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(1, steps + 1):
        x = torch.randn(32, 6)
        loss = functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        if step % every == 0:
            between(model, average, start)


def said(tmp_path, between, **options):
    found = findings_of(lambda: training(between, **options), tmp_path)
    return [one for one in found if one.rule == "GS318"]


def stays(model, average, start):
    model.load_state_dict(average.state_dict())


def comes_back(model, average, start):
    kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(average.state_dict())
    model.load_state_dict(kept)


def starts_again(model, average, start):
    model.load_state_dict(start)


def goes_back_halfway(model, average, start):
    """As Lookahead and Reptile do."""
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            weight.lerp_(start[name], 0.5)
            start[name] = weight.clone()


def is_pulled_back(model, average, start):
    """Move the model to a copy of its beginning, as an exchanged moving average does."""
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            weight.mul_(0.95).add_(start[name], alpha=0.05)


def is_pulled_to_zero(model, average, start):
    """Decay the weights, as a hand-written weight decay does."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.95)


def is_clipped(model, average, start):
    with torch.no_grad():
        for weight in model.parameters():
            weight.clamp_(-0.1, 0.1)


def shrinks(model, average, start):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)


def nothing(model, average, start):
    """Leave all as it is."""


def test_average_that_stays_in_the_model_is_an_error(tmp_path):
    (finding,) = said(tmp_path, stays)
    # The fifth replacement comes after the last step.
    assert dict(finding.evidence) == {"times": 4, "limit": 2, "steps": 40}
    assert finding.severity == "error"


EPOCHS = """
import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def {name}():
    model.load_state_dict(average.state_dict())


for epoch in range(4):
    for _ in range(8):
        x = torch.randn(32, 6)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, 0.1)
    {name}()
"""


@pytest.mark.parametrize(
    ("name", "severity"), some_on_push([("switch_to_average", "note"), ("evaluate", "error")], 2)
)
def test_average_that_a_switch_puts_into_the_model_is_a_note(name, severity, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(EPOCHS.format(name=name))
    (finding,) = (one for one in findings_of_script(script, tmp_path) if one.rule == "GS318")
    assert finding.severity == severity
    assert finding.location.function == name


@pytest.mark.parametrize(
    "between", some_on_push([comes_back, starts_again, goes_back_halfway, shrinks, nothing], 3)
)
def test_other_changes_between_steps_are_not_found(between, tmp_path):
    assert said(tmp_path, between) == []


@pytest.mark.parametrize(
    ("steps", "every", "found"), some_on_push([(40, 20, 0), (41, 20, 1), (40, 1, 0)], 3)
)
def test_it_takes_two_replacements_and_not_one_in_every_step(steps, every, found, tmp_path):
    assert len(said(tmp_path, stays, steps=steps, every=every)) == found


def test_weights_that_are_pulled_back_after_every_step_are_an_error(tmp_path):
    (finding,) = said(tmp_path, is_pulled_back, every=1)
    assert dict(finding.evidence) == {"times": 39, "steps": 40}
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("between", "every"),
    some_on_push(
        [(is_pulled_back, 2), (is_pulled_to_zero, 1), (is_clipped, 1), (starts_again, 1)], 3
    ),
)
def test_decay_clamping_and_a_rare_pull_are_not_found(between, every, tmp_path):
    assert said(tmp_path, between, every=every) == []


class OfAnotherKind(nn.Parameter):
    """A parameter whose elements are not read in every step."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "count"), some_on_push([(OfAnotherKind, 1), (nn.Parameter, 0)], 2)
)
def test_weights_that_cannot_be_compared_are_told(tmp_path, kind, count):
    def loop():
        weight = kind(torch.randn(6))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()

    skipped = recording_of(loop, tmp_path).skipped
    told = [one for one in skipped if one.what.startswith("weights that change between the steps")]
    assert [one.reason.startswith("the weights are of a tensor subclass") for one in told] == (
        [True] * count
    )
