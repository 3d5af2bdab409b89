"""GS328, judged from trainings that average their weights in different ways."""

import copy

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def said(tmp_path, update, *, steps=8, kept=None):
    """Train a network, and update copies of its weights after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    copies = kept(model) if kept else [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.no_grad()
    def follow(step):
        update(copies, list(model.parameters()), step)

    def train():
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
            follow(step)

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS328"]


def added_gap(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.add_((one - weight) * 0.1)


def subtracted_gap_the_wrong_way(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        gap = weight - one
        one -= 0.1 * gap


def negative_lerp(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.lerp_(weight, -0.1)


@pytest.mark.parametrize(
    "update", some_on_push([added_gap, subtracted_gap_the_wrong_way, negative_lerp], 2)
)
def test_an_average_that_runs_away_is_an_error(update, tmp_path):
    (found,) = said(tmp_path, update)
    assert found.severity == "error"
    # What is left of the distance after an update is what the gap is multiplied with.
    assert dict(found.evidence)["factor"] == pytest.approx(1.1)
    assert "runs away" in found.message


def swapped(tau):
    def update(copies, weights, _step):
        for one, weight in zip(copies, weights, strict=True):
            one.copy_((1 - tau) * weight + tau * one)

    return update


def swapped_lerp(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.lerp_(weight, 0.99)


def swapped_in_place(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.mul_(0.01).add_(weight, alpha=0.99)


def swapped_data(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.data.copy_(one.data * 0.01 + weight.data * (1.0 - 0.01))


def swapped_and_assigned(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.data = one.data * 0.01 + 0.99 * weight.data


SWAPPED = {
    "small": swapped(0.01),
    "at the limit": swapped(0.05),
    "lerp": swapped_lerp,
    "in place": swapped_in_place,
    "data": swapped_data,
    "assigned": swapped_and_assigned,
}


@pytest.mark.parametrize("update", some_on_push(SWAPPED.values(), 2), ids=SWAPPED)
def test_swapped_factors_are_found(update, tmp_path):
    (found,) = said(tmp_path, update)
    assert found.severity == "warning"
    assert "almost a copy" in found.message


def swapped_warm_up(copies, weights, step):
    decay = min(0.99, (1 + step) / (3 + step))
    for one, weight in zip(copies, weights, strict=True):
        one.copy_((1 - decay) * one + decay * weight)


def test_a_warm_up_with_swapped_factors_is_found(tmp_path):
    (found,) = said(tmp_path, swapped_warm_up)
    assert found.severity == "warning"
    assert "keeps less of itself" in found.message
    # The third update of the three that a captured step confirms: 1 - 3 / 5.
    assert dict(found.evidence)["factor"] == pytest.approx(0.4, abs=0.07)


def decreasing_slowly(copies, weights, step):
    keep = 0.9 - 0.02 * step  # still above a half after all steps
    for one, weight in zip(copies, weights, strict=True):
        one.lerp_(weight, 1 - keep)


def up_and_down(copies, weights, step):
    keep = 0.3 + 0.1 * (step % 2)
    for one, weight in zip(copies, weights, strict=True):
        one.lerp_(weight, 1 - keep)


def right(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.sub_((one - weight) * 0.1)


def assigned(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.data = 0.9 * one.data + weight.data * 0.1


def warming_up(copies, weights, step):
    decay = min(0.99, step / (10 + step)) + 0.001
    for one, weight in zip(copies, weights, strict=True):
        one.mul_(decay).add_(weight, alpha=1 - decay)


def counting(copies, weights, step):
    for one, weight in zip(copies, weights, strict=True):
        one += (weight - one) / (step + 1)


def copied(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.copy_(weight)


def half(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.lerp_(weight, 0.5)


def no_average(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.mul_(0.01).add_(weight)


@pytest.mark.parametrize(
    "update",
    [
        decreasing_slowly,
        up_and_down,
        warming_up,
        *some_on_push([right, assigned, counting, copied, half, swapped(0.06), no_average], 2),
    ],
)
def test_other_updates_are_fine(update, tmp_path):
    assert not said(tmp_path, update)


def test_once_is_not_enough(tmp_path):
    def update(copies, weights, step):
        if step == 0:
            swapped_lerp(copies, weights, step)

    assert not said(tmp_path, update)


@pytest.mark.nightly
@pytest.mark.parametrize(("update", "findings"), [(added_gap, 1), (right, 0)])
def test_the_weights_of_a_frozen_network_count_as_any_tensors_do(update, findings, tmp_path):
    def kept(model):
        return list(copy.deepcopy(model).requires_grad_(False).parameters())

    assert len(said(tmp_path, update, kept=kept)) == findings


def assigned(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one = one * 0.9 + weight * (1 - 0.9)


def dropped(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.lerp(weight, 0.1)


@pytest.mark.parametrize("update", [assigned, dropped])
def test_an_average_that_is_not_stored_is_an_error(update, tmp_path):
    (found,) = said(tmp_path, update)
    assert (found.severity, found.count) == ("error", 4)
    assert "not stored" in found.message
    assert "one" in found.location.source


def assigned_and_stored(copies, weights, _step):
    for number, (one, weight) in enumerate(zip(copies, weights, strict=True)):
        one = one * 0.9 + weight * (1 - 0.9)
        copies[number] = one


def assigned_and_read(copies, weights, _step):
    total = 0.0
    for one, weight in zip(copies, weights, strict=True):
        one = one * 0.5 + weight * 0.5
        total = total + one.norm()
    assert total > 0


def not_of_the_weights(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one = one * 0.9 + one.flip(0) * (1 - 0.9)
        assert weight.shape == one.shape


def in_data(copies, weights, _step):
    for one, weight in zip(copies, weights, strict=True):
        one.data = one.data * 0.9 + weight.data * (1 - 0.9)


@pytest.mark.parametrize(
    "update", [assigned_and_stored, assigned_and_read, not_of_the_weights, in_data]
)
def test_an_average_that_is_stored_or_read_is_fine(update, tmp_path):
    assert not said(tmp_path, update)
