import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from gradscope.rules.loss.flat_loss import FlatLoss
from tests.nightly import some_on_push
from tests.rules.clipping.clipped_run import ClippedRun
from tests.rules.flow.captured_evidence import found_by
from tests.rules.watching import findings_of_script, recording_of

SAMPLE = Path(__file__).parents[3] / "sample_models" / "flat_loss.py"


def run_of(losses, *, rates=None):
    """A training with these losses by step."""
    run = ClippedRun()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for step, loss in enumerate(losses):
        run.zero(optimizer)
        run.backward(weights, loss=loss)
        run.step(optimizer, **({} if rates is None else {"lr": rates[step]}))
    return run.recording()


def falling(share, steps=200, level=2.0):
    """Losses whose fifths fall by a share of their mean."""
    return [level * (1 + share * (0.5 - step * 5 // steps / 4)) for step in range(steps)]


def test_a_loss_that_does_not_move_is_a_note_with_its_numbers():
    (found,) = found_by(FlatLoss, run_of([2.0] * 200))
    assert (found.severity, found.step) == ("note", 199)
    assert found.message == (
        "the loss hardly moves in 200 steps: it is 2 in the first 40 and 2 in the last"
    )
    assert dict(found.evidence)["moved"] == 0


@pytest.mark.parametrize(("share", "count"), [(0.009, 1), (0.01, 0), (0.011, 0), (-0.02, 0)])
def test_movement_decides(share, count):
    assert len(found_by(FlatLoss, run_of(falling(share)))) == count


def test_a_fall_in_the_first_steps_is_a_movement():
    assert not found_by(FlatLoss, run_of([*[2.3] * 5, *[2.0] * 195]))


def test_a_dip_on_the_way_is_a_movement():
    assert not found_by(FlatLoss, run_of([*[2.0] * 80, *[1.5] * 40, *[2.0] * 80]))


@pytest.mark.parametrize(("steps", "is_judged"), [(99, False), (100, True)])
def test_very_short_runs_are_not_judged(steps, is_judged):
    reason = found_by(FlatLoss, run_of([2.0] * steps), reason=True)
    assert (reason is None) is is_judged
    if reason:
        assert "fewer than 100 steps" in reason


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ([2.0, -2.0] * 100, "not all above zero"),
        ([math.nan] * 200, "fewer than 100 steps"),
        ([*[2.0] * 100, *[math.inf] * 20], None),
        ([1.2, 0.8] * 100, "vary too much"),
        ([1.15, 0.85] * 100, None),
    ],
    ids=["signs", "NaN", "infinite", "noise", "less noise"],
)
def test_losses_that_tell_nothing_are_not_judged(losses, reason):
    found = found_by(FlatLoss, run_of(losses), reason=True)
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize(("factor", "is_judged"), [(2.0, True), (2.1, False)])
def test_a_warm_up_is_not_judged(factor, is_judged):
    rates = [0.1 * (1 + (factor - 1) * step / 199) for step in range(200)]
    reason = found_by(FlatLoss, run_of([2.0] * 200, rates=rates), reason=True)
    assert (reason is None) is is_judged


def test_adversaries_may_hold_each_other_in_balance():
    run = ClippedRun()
    first, second = run.model("one", 2), run.model("two", 2)
    players = [(run.optimizer(first), first), (run.optimizer(second), second)]
    for _ in range(200):
        for optimizer, weights in players:
            run.zero(optimizer)
            run.backward(weights, loss=0.693)
            run.step(optimizer)
    assert "several optimizers" in found_by(FlatLoss, run.recording(), reason=True)


def trained(loss_of, steps=120, lr=1e-2):
    """Return a loop that trains a small network on what a function makes of it."""

    def loop():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()

    return loop


def guessed(model):
    """A loss of targets that have nothing to do with the inputs."""
    return cross_entropy(model(torch.randn(256, 8)), torch.randint(0, 4, (256,)))


def learned(model):
    x = torch.randn(64, 8)
    return cross_entropy(model(x), x[:, :4].argmax(dim=1))


def contrastive(model):
    """The plateau of a contrastive loss: the two views of an example have nothing in common."""
    left, right = (normalize(model(torch.randn(64, 8)), dim=1) for _ in range(2))
    return cross_entropy(left @ right.T, torch.arange(64))


def policy(model):
    """REINFORCE with a baseline: the loss says nothing of the return."""
    x = torch.randn(64, 8)
    chosen = torch.distributions.Categorical(logits=model(x))
    actions = chosen.sample()
    rewards = (actions == x[:, :4].argmax(dim=1)).float()
    return -(chosen.log_prob(actions) * (rewards - rewards.mean())).mean()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("loss", "finds"),
    some_on_push(
        [(guessed, True), (learned, False), (contrastive, False), (policy, False)], {0, 1}
    ),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_real_trainings(tmp_path, loss, finds):
    recording = recording_of(trained(loss), tmp_path)
    if found_by(FlatLoss, recording, reason=True) is not None:
        assert not finds
        return
    found = found_by(FlatLoss, recording)
    assert bool(found) is finds
    if found:
        assert "guessing among 4 classes" in found[0].message
        assert found[0].location.line


def test_the_sample_points_at_its_backward(tmp_path):
    (found,) = findings_of_script(SAMPLE, tmp_path)
    assert (found.rule, found.severity) == ("GS708", "note")
    assert "# GS708" in SAMPLE.read_text(encoding="utf-8").splitlines()[found.location.line - 1]
