"""GS722: targets beyond the range of the last activation, and targets that only look so."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

G = torch.Generator().manual_seed(3)
FEATURES = torch.randn(64, 6, generator=G)
TARGETS = torch.randn(64, 1, generator=G)
CLASSES = (TARGETS > 0).float()


def told(loss, activation=None):
    """Return the findings of a loss of the last layer's output, if needed after an activation."""
    torch.manual_seed(0)
    last = nn.Linear(16, 1)
    nn.init.constant_(last.bias, 0.5)  # no ReLU is dead at the start, which would be an error
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), last, activation or nn.Identity())
    found = gradscope.inspect(model, FEATURES, loss).findings
    return [one for one in found if one.rule == "GS722"]


def lost(targets, low, high):
    """Return the mean squared distance from a range over the variance, the quick way."""
    reached = targets.double().clamp(low, high)
    return float((targets - reached).square().mean() / targets.double().var(correction=0))


LOSSES = [
    functional.mse_loss,
    functional.l1_loss,
    lambda output, target: functional.huber_loss(output, target, reduction="none").sum(1).mean(),
    lambda output, target: ((target - output) ** 2).mean(),
    lambda output, target: 0.5 * (output - target).abs().mean() + 0.1 * output.square().mean(),
]
NAMES = ["squared", "absolute", "huber", "by hand", "one of two terms"]


@pytest.mark.parametrize("loss", some_on_push(LOSSES, 3), ids=NAMES)
def test_targets_below_a_relu_are_a_warning(loss):
    (found,) = told(lambda output: loss(output, TARGETS), nn.ReLU())
    evidence = dict(found.evidence)
    assert found.severity == "warning"
    assert evidence["outside"] == int((TARGETS < 0).sum())
    assert evidence["lost"] == pytest.approx(lost(TARGETS, 0, None))
    assert not told(lambda output: loss(output, TARGETS.abs()), nn.ReLU())
    assert not told(lambda output: loss(output, TARGETS), nn.LeakyReLU())


ACTIVATIONS = [
    (nn.Sigmoid(), 0, 1),
    (nn.Tanh(), -1, 1),
    (nn.Softplus(), 0, None),
    (nn.Hardtanh(-0.5, 0.5), -0.5, 0.5),
    (nn.ReLU6(), 0, 6),
]


@pytest.mark.parametrize(("activation", "low", "high"), ACTIVATIONS)
def test_range_is_that_of_the_activation(activation, low, high):
    far = 2 * TARGETS
    (found,) = told(lambda output: functional.mse_loss(output, far), activation)
    assert dict(found.evidence)["lost"] == pytest.approx(lost(far, low, high))
    inside = far.clamp(low, high)
    assert not told(lambda output: functional.mse_loss(output, inside), activation)


def test_targets_of_which_the_mean_is_a_better_prediction_are_an_error():
    pixels = 20 + 10 * TARGETS.abs()
    (found,) = told(lambda output: functional.l1_loss(output.clamp(0, 1), pixels))
    assert (found.severity, found.location.source.count("clamp(0, 1)")) == ("error", 1)
    assert not told(lambda output: functional.l1_loss(output.clamp(min=0), pixels))
    assert not told(lambda output: functional.l1_loss(60 * torch.sigmoid(output), pixels))
    assert told(lambda output: functional.l1_loss(torch.sigmoid(output) / 2, pixels))


@pytest.mark.parametrize("share", [0.24, 0.26])
def test_share_that_is_lost_has_a_limit(share):
    # Of each four targets three are 0 and 1, and one lies the distance d below 0.
    inside = torch.tensor([0.0, 1.0, 0.0]).repeat(16)

    def at(distance):
        return torch.cat([inside, -torch.full((16,), distance)])[:, None]

    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(at(middle), 0, 1) < share else (low, middle)
    found = told(lambda output: functional.mse_loss(output, at(low)), nn.Sigmoid())
    assert bool(found) == (share > 0.25)


def test_few_outliers_are_fine():
    rare = CLASSES.clone()
    rare[:6] = 30.0
    assert not told(lambda output: functional.mse_loss(output, rare), nn.Sigmoid())
    rare[6] = 30.0
    assert told(lambda output: functional.mse_loss(output, rare), nn.Sigmoid())


def test_masks_of_0_and_255_in_a_cross_entropy_are_an_error():
    loss = functional.binary_cross_entropy_with_logits
    (found,) = told(lambda output: loss(output, 255 * CLASSES))
    assert found.severity == "error"
    assert not told(lambda output: loss(output, CLASSES))
    assert not told(lambda output: loss(output, 0.9 * CLASSES + 0.05))


LEFT_OUT = [
    lambda output, target, known: (
        (functional.mse_loss(output, target, reduction="none") * known).sum() / known.sum()
    ),
    lambda output, target, known: (((output - target) ** 2)[known.bool()]).mean(),
    lambda output, target, known: torch.where(
        known.bool(), (output - target).abs(), torch.zeros(())
    ).mean(),
    lambda output, target, known: functional.mse_loss(output * known, target * known),
]


@pytest.mark.parametrize("loss", LEFT_OUT, ids=["product", "index", "where", "before"])
def test_numbers_that_mark_what_is_left_out_are_fine(loss):
    target = torch.where(CLASSES.bool(), torch.rand(64, 1, generator=G), torch.tensor(-100.0))
    assert not told(lambda output: loss(output, target, CLASSES), nn.Sigmoid())
    assert told(lambda output: functional.mse_loss(output, target), nn.Sigmoid())


def test_clipped_values_of_an_old_network_are_fine():
    old = 5 * TARGETS

    def clipped(output):
        near = old + (output - old).clamp(-0.2, 0.2)
        return torch.max((near - 2 * old).square(), (output - 2 * old).square()).mean()

    assert not told(clipped)


def test_differences_inside_of_the_model_are_fine():
    torch.manual_seed(0)
    centres = 3 * torch.randn(64, 1)
    last = nn.Linear(1, 1)

    def loss(output):
        near = (torch.relu(output) - centres).square()
        return functional.mse_loss(last(near), TARGETS)

    assert not told(loss)
