"""GS710, judged from the losses and gradient norms of runs, and of preference trainings."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.rules.loss.constant_loss import ConstantLoss
from tests.nightly import some_on_push
from tests.rules.clipping.clipped_run import ClippedRun
from tests.rules.flow.captured_evidence import found_by
from tests.rules.watching import findings_of


def run_of(losses, norms=None):
    """A training with these losses and gradient norms by step."""
    run = ClippedRun()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for step, loss in enumerate(losses):
        run.zero(optimizer)
        run.backward(weights, loss=loss)
        run.step(optimizer, norm=(1 + step / 10 if norms is None else norms[step]))
    return run.recording()


def run_after(*, again):
    """A training after the pre-training of the same weights, which goes on in between if again."""
    run = ClippedRun()
    weights = run.model("model", 2)
    first, second = run.optimizer(weights), run.optimizer(weights)
    for step in range(40):
        is_before = step < 15 or (again and step == 30)
        optimizer = first if is_before else second
        run.zero(optimizer)
        run.backward(weights, loss=3 - step / 10 if is_before else 0.6931472)
        run.step(optimizer, norm=1 + step / 10)
    return run.recording()


def test_a_training_after_another_is_judged_alone():
    (found,) = found_by(ConstantLoss, run_after(again=False))
    assert "in each of 25 steps" in found.message


def test_optimizers_that_step_in_turn_are_not_judged():
    assert not found_by(ConstantLoss, run_after(again=True))
    reason = found_by(ConstantLoss, run_after(again=True), reason=True)
    assert reason is not None


def test_equal_losses_with_different_gradients_are_found():
    (found,) = found_by(ConstantLoss, run_of([0.6931472] * 20))
    assert found.severity == "warning"
    assert "0.6931 (ln 2) in each of 20 steps" in found.message
    assert dict(found.evidence)["norm_highest"] == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("losses", "norms"),
    [
        ([2.0] * 20, [1.0] * 20),
        ([2.0] * 20, [0.0] * 20),
        ([0.0] * 20, None),
        ([-1.0] * 20, None),
        ([*[2.0] * 19, 2.00001], None),
    ],
    ids=["one batch", "no gradient", "zero", "negative", "one that moves"],
)
def test_other_losses_are_fine(losses, norms):
    assert not found_by(ConstantLoss, run_of(losses, norms))


@pytest.mark.parametrize(("steps", "is_judged"), [(19, False), (20, True)])
def test_short_runs_are_not_judged(steps, is_judged):
    assert (found_by(ConstantLoss, run_of([2.0] * steps), reason=True) is None) is is_judged


@pytest.mark.parametrize(
    ("loss", "norm", "level"),
    [
        (0.6931472, 6.8e-7, "error"),
        (0.6931472, 7e-7, "warning"),
        (2.0, 1e-8, None),  # no step was captured, and the number means nothing
    ],
)
def test_a_gradient_of_rounding_is_an_error(loss, norm, level):
    run = run_of([loss] * 20, [norm * (1 - step / 100) for step in range(20)])
    assert [one.severity for one in found_by(ConstantLoss, run)] == ([level] if level else [])


def preferences(copied, steps=24, *, differentiated=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    reference = copy.deepcopy(model) if copied else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        chosen, rejected = torch.randn(8, 6) + 0.5, torch.randn(8, 6)
        with torch.set_grad_enabled(differentiated):
            usual = reference(chosen) - reference(rejected)
        loss = -functional.logsigmoid(model(chosen) - model(rejected) - usual).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("copied", some_on_push([False, True], 2))
def test_a_reference_that_is_the_model_is_found_at_the_loss(copied, tmp_path):
    found = findings_of(lambda: preferences(copied), tmp_path)
    found = [one for one in found if one.rule == "GS710"]
    assert len(found) == (not copied)
    assert all("logsigmoid" in one.location.source for one in found)


@pytest.mark.parametrize("copied", some_on_push([False, True], 2))
def test_two_sides_whose_gradients_cancel_are_an_error(copied, tmp_path):
    """A second model's gradients are its own, and cancel nothing."""
    found = findings_of(lambda: preferences(copied, differentiated=True), tmp_path)
    levels = [one.severity for one in found if one.rule == "GS710"]
    assert levels == ([] if copied else ["error"])


def test_ratios_of_a_policy_with_itself_are_fine(tmp_path):
    def policy():
        torch.manual_seed(0)
        model = nn.Linear(6, 4)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(24):
            scores = model(torch.randn(32, 6)).log_softmax(-1)
            advantage = torch.randn(32)
            own = scores[:, 0]
            loss = -((own - own.detach()).exp() * (advantage - advantage.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert not [one for one in findings_of(policy, tmp_path) if one.rule == "GS710"]
