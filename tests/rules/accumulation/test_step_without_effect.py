"""GS318, judged from trainings whose optimizer does little or nothing."""

import pytest
import torch
from torch import nn

from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.nightly import some_on_push
from tests.rules.watching import findings_of, findings_of_script, recording_of


class Own(torch.optim.Optimizer):
    """Steps of gradient descent, made as a user would make them."""

    def __init__(self, params, update, lr=0.1):
        super().__init__(params, {"lr": lr})
        self.update, self.calls = update, 0

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            for weight in group["params"]:
                self.update(self, weight, group["lr"])


def stored(optimizer, weight, lr):
    weight.add_(weight.grad, alpha=-lr)


def thrown_away(optimizer, weight, lr):
    weight.add(weight.grad, alpha=-lr)


def assigned(optimizer, weight, lr):
    weight = weight - lr * weight.grad


def every_fourth(optimizer, weight, lr):
    if optimizer.calls % 4 == 0:
        weight.add_(weight.grad, alpha=-lr)


def replaced(optimizer, weight, lr):
    weight.data = weight.data - lr * weight.grad


def said(tmp_path, update, *, steps=24, dtype=torch.float32, lr=0.1):
    def train():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)
        optimizer = Own(model.parameters(), update, lr)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(16, 6, dtype=dtype)).square().mean().backward()
            optimizer.step()

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS318"]


@pytest.mark.parametrize("update", [thrown_away, assigned])
def test_update_that_is_not_stored_is_an_error(update, tmp_path):
    (found,) = said(tmp_path, update)
    assert (found.severity, found.location.source) == ("error", "optimizer.step()")
    assert dict(found.evidence)["largest_update"] == 0
    assert len(found.parameters) == 4


@pytest.mark.parametrize("update", some_on_push([stored, every_fourth, replaced], {0, 1}))
def test_optimizers_that_move_weights_are_right(update, tmp_path):
    assert not said(tmp_path, update)


@pytest.mark.parametrize("lr", [0.0, 1e-9])
def test_learning_rate_that_moves_nothing_is_not_the_optimizers_fault(lr, tmp_path):
    assert not said(tmp_path, thrown_away, lr=lr)


@pytest.mark.nightly
def test_half_precision_is_judged_by_its_own_rule(tmp_path):
    assert not said(tmp_path, thrown_away, dtype=torch.bfloat16)


@pytest.mark.parametrize(("steps", "found"), [(2, 0), (3, 1)])
def test_three_measured_steps_are_needed(steps, found, tmp_path):
    assert len(said(tmp_path, thrown_away, steps=steps)) == found


def test_thresholds_count_measured_steps_and_their_size(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    optimizer = Own(model.parameters(), thrown_away, lr=0.1)

    def train():
        for _ in range(24):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()

    recording = recording_of(train, tmp_path)

    def found(**thresholds):
        settings = Settings(select=("GS318",), thresholds={"step-without-effect": thresholds})
        return judge(recording, settings).findings

    (finding,) = found()
    steps = dict(finding.evidence)["steps_measured"]
    assert found(least_steps=steps - 1)
    assert found(least_steps=steps)
    assert not found(least_steps=steps + 1)
    # No optimizer of torch's: the size of its step is taken to be the learning rate.
    ratio = 0.1 / max(1.0, *(float(weight.detach().norm()) for weight in model.parameters()))
    assert found(least_ratio=ratio * 0.999)
    assert not found(least_ratio=ratio * 1.001)


# A script's own file: its source tells which line fails to update.
BY_HAND = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
rate = 0.1


def update():
    for p in model.parameters():
        {update}
    model.zero_grad()


for _ in range({passes}):
    model(torch.randn(16, 6)).square().mean().backward()
    with torch.no_grad():
        update()
"""


def said_of(tmp_path, update, *, passes=16):
    folder = tmp_path / str(passes)
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(BY_HAND.format(update=update, passes=passes))
    return [one for one in findings_of_script(script, folder) if one.rule == "GS318"]


@pytest.mark.parametrize(
    "update",
    some_on_push(
        [
            "p = p - rate * p.grad",
            "p = p.sub(rate * p.grad)",
            "p.sub(rate * p.grad)",
            "p.data.add(p.grad, alpha=-rate)",
        ],
        {0, 2},
    ),
)
def test_update_by_hand_that_is_not_stored_is_found_at_its_line(update, tmp_path):
    (finding,) = said_of(tmp_path, update)
    assert finding.location.source == update
    assert (finding.severity, dict(finding.evidence)["steps"]) == ("error", 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "update",
    some_on_push(
        [
            "p -= rate * p.grad",
            "p.sub_(rate * p.grad)",
            "p.data = p.data - rate * p.grad",
            # A script that measures gradients and trains nothing.
            "information = p.grad.square() + 1",
            "norm = (p - p.grad).norm()",
        ],
        {0, 3},
    ),
)
def test_update_that_is_stored_and_gradients_that_are_only_read_are_not_found(update, tmp_path):
    assert not said_of(tmp_path, update)


@pytest.mark.nightly
def test_sixteen_backward_passes_are_needed(tmp_path):
    assert not said_of(tmp_path, "p.sub(rate * p.grad)", passes=15)
    assert said_of(tmp_path, "p.sub(rate * p.grad)", passes=16)


def test_weights_that_are_put_back_for_each_batch_are_right(tmp_path):
    def adapt():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        kept = {name: one.clone() for name, one in model.state_dict().items()}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(24):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
            model.load_state_dict(kept)

    assert not [one for one in findings_of(adapt, tmp_path) if one.rule == "GS318"]
