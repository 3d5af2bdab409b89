"""Tells parameters that learn only with other random numbers from those that never learn."""

import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.probes.snapshot import RandomStates
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.parameters import RedrawRecord
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))

SOURCES = {
    "torch": lambda model: torch.rand(()).item(),
    "random": lambda model: random.random(),
    "numpy": lambda model: numpy.random.rand(),
}


class Skipping(nn.Module):
    """Takes one of two layers, by a random number, and never the third."""

    def __init__(self, source):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.source = source

    def forward(self, x):
        return self.layers[0 if self.source(self) < 0.5 else 1](x).square().mean()


class Masking(nn.Module):
    """Lets one of two layers through, by a mask that is drawn."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        first, second = functional.one_hot(torch.randint(2, ()), 2)
        return (first * self.layers[0](x) + second * self.layers[1](x)).square().mean()


def seen(model, probe_steps=1, seed=0):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    target = target_from_objects(model, X, None, optimizer=None, grad_output=None)
    recording = record(target, trial=Trial(probe_steps=probe_steps), eager=False, command="inspect")
    (reason,) = [
        one.skip_reason for one in recording.evidence_of(ProbeRecord) if one.name == "redraws"
    ]
    return recording, reason


def denied(recording):
    """Return the parameters without a gradient, or with one of zeros, after the first step."""
    stats = (stat for stat in recording.parameter_stats if stat.step == 0)
    return {stat.parameter for stat in stats if stat.reach != "gradient"}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_layer_that_was_skipped_learns_under_another_draw(source):
    recording, reason = seen(Skipping(source))
    (found,) = recording.evidence_of(RedrawRecord)
    assert reason is None
    assert set(found.parameters) == denied(recording) - {4, 5}


def test_the_layer_that_was_masked_learns_under_another_draw():
    recording, _ = seen(Masking())
    (found,) = recording.evidence_of(RedrawRecord)
    assert set(found.parameters) == denied(recording)
    assert len(found.parameters) == 2


def test_nothing_is_noted_where_nothing_is_random_or_all_learns():
    class Learning(Skipping):
        def forward(self, x):
            rest = sum(layer.weight.sum() + layer.bias.sum() for layer in self.layers)
            return super().forward(x) + rest

    for model in (Skipping(lambda model: 0.0), Learning(SOURCES["torch"])):
        recording, reason = seen(model)
        assert (recording.evidence_of(RedrawRecord), reason) == ((), None)


def test_a_forward_without_random_numbers_is_run_once_more_at_most():
    class Counted(Skipping):
        calls = 0

        def forward(self, x):
            Counted.calls += 1
            return super().forward(x)

    class Learning(Counted):
        def forward(self, x):
            return super().forward(x) + sum(layer(x).sum() for layer in self.layers)

    calls = []
    for kind in (Counted, Learning):
        Counted.calls = 0
        torch.manual_seed(7)  # with other weights, the probe of ignored inputs looks twice
        seen(kind(lambda model: 0.0))
        calls.append(Counted.calls)
    assert calls[0] - calls[1] <= 1


def test_random_numbers_go_on_as_if_nothing_had_been_drawn():
    model = Skipping(SOURCES["torch"])
    _, before = seen(model), RandomStates.now()
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    assert before.equal(RandomStates.now())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_another_forward_nothing_is_drawn():
    recording, reason = seen(Skipping(SOURCES["torch"]), probe_steps=0)
    assert (recording.evidence_of(RedrawRecord), reason) == ((), "the forward is not repeated")


def test_an_exception_under_another_draw_is_a_reason_to_skip():
    class Fussy(Skipping):
        def forward(self, x):
            if torch.initial_seed() != 0:
                raise ValueError("another seed")
            return super().forward(x)

    _, reason = seen(Fussy(SOURCES["torch"]))
    assert reason.startswith("the forward raised when it was repeated")
