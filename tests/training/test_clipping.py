"""Effect of clipping on the steps of a target, against a loop that clips manually."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.recording.evidence.training import ClipPass, ClipTrial
from gradscope.target.options import ClipOptions
from tests.nightly import some_on_push
from tests.training.looping import SEED, norms_of, watched

BATCHES = [(torch.randn(8, 4), torch.randn(8, 2)) for _ in range(5)]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 2))


def loss_fn(model, batch):
    return (model(batch[0]) - batch[1]).square().mean() * 5


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def by_hand(clip, steps, batches=1):
    """The norms before the clip, of the steps and then of batches at the weights they lead to."""
    model = network()
    optimizer, seen = sgd(model), []
    for turn in range(steps + batches):
        torch.manual_seed(SEED + turn)
        model.zero_grad()
        loss_fn(model, BATCHES[turn % len(BATCHES)]).backward()
        seen.append(norms_of(model))
        if turn < steps:
            clip(model.parameters())
            optimizer.step()
    return seen


def trial(steps, batches=1, **options):
    model = network()
    chosen = ClipOptions(batches=batches, **options)
    return watched(model, BATCHES, loss_fn, sgd(model), steps=steps, clipping=chosen)


@pytest.mark.parametrize(
    ("options", "clip"),
    some_on_push(
        [
            ({}, lambda held: None),
            ({"max_norm": 0.5}, lambda held: clip_grad_norm_(held, 0.5)),
            (
                {"max_norm": 0.1, "norm_type": math.inf},
                lambda held: clip_grad_norm_(held, 0.1, math.inf),
            ),
            ({"value": 0.05}, lambda held: clip_grad_value_(held, 0.05)),
            (
                {"max_norm": 0.2, "per_tensor": True},
                lambda held: [clip_grad_norm_(one, 0.2) for one in held],
            ),
        ],
        {0, 2},
    ),
    ids=["none", "norm", "inf", "value", "per tensor"],
)
def test_norms_are_those_of_a_training_with_that_clip_before_it(options, clip):
    recording = trial(7, **options)
    found = [one.norms for one in recording.evidence_of(ClipPass)]
    expected = by_hand(clip, 7)
    assert len(found) == len(expected) == 8
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_batches_are_measured_at_the_weights_that_the_steps_lead_to():
    recording = trial(3, batches=4, max_norm=0.5)
    passes = recording.evidence_of(ClipPass)
    assert [one.made for one in passes] == [0, 1, 2, 3, 3, 3, 3]
    expected = by_hand(lambda held: clip_grad_norm_(held, 0.5), 3, batches=4)
    for one, theirs in zip(passes, expected, strict=True):
        assert one.norms == pytest.approx(theirs, rel=1e-5)


def test_batches_alone_leave_the_weights_as_they_are():
    passes = trial(0, batches=5).evidence_of(ClipPass)
    expected = by_hand(lambda held: None, 0, batches=5)
    assert [one.made for one in passes] == [0] * 5
    for one, theirs in zip(passes, expected, strict=True):
        assert one.norms == pytest.approx(theirs, rel=1e-6)


def test_model_its_gradients_and_its_optimizer_are_as_they_were():
    model = network()
    optimizer = sgd(model)
    loss_fn(model, BATCHES[0]).backward()
    optimizer.step()
    held = [(one.grad, one.grad.clone(), one.detach().clone()) for one in model.parameters()]
    momenta = [optimizer.state[p]["momentum_buffer"].clone() for p in model.parameters()]
    random = torch.get_rng_state()
    watched(
        model, BATCHES, loss_fn, optimizer, steps=4, clipping=ClipOptions(max_norm=0.01, batches=2)
    )
    for one, (gradient, values, weights), momentum in zip(
        model.parameters(), held, momenta, strict=True
    ):
        assert one.grad is gradient
        assert torch.equal(gradient, values)
        assert torch.equal(one, weights)
        assert torch.equal(optimizer.state[one]["momentum_buffer"], momentum)
    assert torch.equal(torch.get_rng_state(), random)


def test_report_tells_what_the_clip_leaves_of_the_steps():
    recording = trial(9, max_norm=0.5)
    clipping = Clipping.of(recording)
    (section,) = clipping.sections
    before = [math.hypot(*norms) for norms in by_hand(lambda h: clip_grad_norm_(h, 0.5), 9)]
    assert [point.norm for point in section.points] == pytest.approx(before, rel=1e-5)
    factors = [min(0.5 / (norm + 1e-6), 1) for norm in before]
    assert [p.coefficient for p in section.points] == pytest.approx(factors, rel=1e-5)
    assert len(section.cut) == sum(norm > 0.5 for norm in before)
    assert section.optimizer.family == "sgd"
    assert section.optimizer.rate == 0.1
    assert sum(one.share for one in section.contributions.parameters) == pytest.approx(1)


def test_limit_is_found_where_none_is_given():
    section = Clipping.of(trial(20)).sections[0]
    assert section.is_advised
    assert section.limit == section.advice.limit
    assert section.advice.level.median < section.limit < 10 * section.advice.level.median


def test_norms_that_become_nan_are_reported_and_not_averaged():
    def exploding(model, batch):
        return loss_fn(model, batch) * (math.nan if model.weight.norm() > 2 else 1.0)

    model = nn.Linear(4, 2)
    recording = watched(
        model, BATCHES, exploding, torch.optim.SGD(model.parameters(), lr=2.0),
        steps=30, clipping=ClipOptions(max_norm=1e3),
    )  # fmt: skip
    section = Clipping.of(recording).sections[0]
    assert len(section.broken) == 1
    assert math.isfinite(section.norms.greatest)


def test_trial_keeps_what_was_asked_for():
    (one,) = trial(2, value=0.3, adaptive_ratio=0.02).evidence_of(ClipTrial)
    assert (one.asked, one.applied) == (("value", "adaptive"), "value")
    assert (one.value, one.adaptive_ratio, one.steps) == (0.3, 0.02, 2)
