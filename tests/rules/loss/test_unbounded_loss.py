"""GS728: what counts as a loss without bound."""

from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.rules.loss.unbounded_loss import UnboundedLoss
from tests.rules.clipping.clipped_run import ClippedRun
from tests.rules.flow.captured_evidence import found_by
from tests.rules.watching import findings_of, findings_of_script

SAMPLE = Path(__file__).parents[3] / "sample_models" / "unbounded_loss.py"


def run_of(losses, *, optimizers=1):
    """A training with these losses by step, by optimizers in turn."""
    run = ClippedRun()
    weights = [run.model(f"model{number}", 2) for number in range(optimizers)]
    made = [run.optimizer(one) for one in weights]
    for step, loss in enumerate(losses):
        turn = step % optimizers
        run.zero(made[turn])
        run.backward(weights[turn], loss=loss)
        run.step(made[turn])
    return run.recording()


def growing(times, *, start=2.0, steps=50):
    """Losses that begin with a start, and whose last fifth has a mean of so many times less."""
    raw = [0.0, 0.0, *(2.0 ** (10 * step / steps) - 1 for step in range(2, steps))]
    last = sum(raw[-steps // 5 :]) / (steps // 5)
    return [start - (times * max(abs(start), 1) + start) * one / last for one in raw]


@pytest.mark.parametrize(
    ("times", "level"), [(99, None), (101, "warning"), (990, "warning"), (1_010, "error")]
)
@pytest.mark.parametrize("start", [2.0, -30.0, 0.01])
def test_the_size_of_the_loss_decides(times, level, start):
    losses = growing(times, start=start)
    found = found_by(UnboundedLoss, run_of(losses))
    assert [one.severity for one in found] == [level] * (level is not None)
    if found:
        mean = sum(losses[-10:]) / 10
        assert dict(found[0].evidence)["last_loss"] == pytest.approx(mean)
        assert dict(found[0].evidence)["times"] == pytest.approx(
            -mean / max(abs(sum(losses[:2]) / 2), 1)
        )


def test_a_loss_that_falls_slower_at_the_end_is_bounded():
    falls = [0.0, 0.0, 0.0, *(1 - 0.9**step for step in range(57))]
    assert not found_by(UnboundedLoss, run_of([2 - 1e5 * fall for fall in falls]))
    (found,) = found_by(UnboundedLoss, run_of([2 - 1e7 * fall for fall in falls]))
    assert found.severity == "error" and "faster" not in found.message


def test_a_loss_that_rises_is_another_mistake():
    assert not found_by(UnboundedLoss, run_of([-one for one in growing(1e6)]))


def test_losses_of_several_optimizers_are_not_judged():
    reason = found_by(UnboundedLoss, run_of(growing(1e6), optimizers=2), reason=True)
    assert reason is not None and "several optimizers" in reason
    reason = found_by(UnboundedLoss, run_of(growing(1e6)[:19]), reason=True)
    assert reason == "fewer than 20 steps have a finite loss"


class Gaussian(nn.Module):
    """A mean and a log-variance for each row."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x):
        return self.layers(x).chunk(2, dim=-1)


def wrong(mean, scale, x):
    return (mean - x[:, :4]).square().mean() - (scale.exp() + mean.square()).mean()


def right(mean, scale, x):
    error = (mean - x[:, :4]).square()
    return 0.5 * (error * (-scale).exp() + scale).mean()


def trained(loss):
    def loop():
        torch.manual_seed(0)
        model = Gaussian()
        adam = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(100):
            x = torch.randn(32, 8)
            value = loss(*model(x), x)
            adam.zero_grad()
            value.backward()
            adam.step()

    return loop


@pytest.mark.parametrize(("loss", "finds"), [(wrong, True), (right, False)])
def test_real_trainings(loss, finds, tmp_path):
    found = [one for one in findings_of(trained(loss), tmp_path) if one.rule == "GS728"]
    assert len(found) == finds
    if found:
        assert found[0].severity == "error"
        assert "scale.exp()" in found[0].location.source


@pytest.mark.nightly
def test_the_sample_points_at_its_loss(tmp_path):
    (found,) = [one for one in findings_of_script(SAMPLE, tmp_path) if one.rule == "GS728"]
    assert found.severity == "error"
    assert "# GS728" in SAMPLE.read_text(encoding="utf-8").splitlines()[found.location.line - 1]
