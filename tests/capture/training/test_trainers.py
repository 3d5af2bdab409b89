"""Trainers: their wrappers are no optimizers, and names are the script's."""

import pytest
import torch
from torch import nn

from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.rules.engine import judge
from gradscope.rules.helpers.optimizers import NO_OPTIMIZER, NO_STEPPER
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

TRAINER = """
import torch

class Wrapper(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.defaults = optimizer.defaults

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        optimizer = self.optimizer
        optimizer.step()

def fit(model, wrapped, steps):
    scheduler = torch.optim.lr_scheduler.ConstantLR(wrapped)
    for _ in range(steps):
        wrapped.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        wrapped.step()
        scheduler.step()

def train(model, steps):
    fit(model, Wrapper(torch.optim.SGD(model.parameters(), lr=0.1)), steps)
"""
"""As in accelerate and Lightning."""


@pytest.fixture(name="trainer")
def _trainer():
    names: dict[str, object] = {"__name__": "trainer"}
    exec(compile(TRAINER, "/venv/lib/site-packages/trainer.py", "exec"), names)
    return names


def test_wrapper_is_the_optimizer_that_it_lets_step(run, trainer):
    model = nn.Linear(3, 2)

    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped = trainer["Wrapper"](optimizer)
        trainer["fit"](model, wrapped, 3)

    made = run(loop)
    (known,) = made.recording.evidence_of(TrainedOptimizer)
    assert (known.class_name, known.name) == ("SGD", "optimizer")
    assert len(known.parameters) == 2
    assert {event.optimizer for event in made.events("scheduler")} == {0}


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        (lambda wrap, fit, model: _steps(wrap(_make(model)), model), "od"),
        (lambda wrap, fit, model: fit(model, wrap(_make(model)), 3), "SGD"),
    ],
    ids=["own loop", "trainer's loop"],
)
def test_name_is_that_of_the_script(loop, name, run, trainer):
    model = nn.Linear(3, 2)
    other = nn.Linear(3, 2)

    def whole():
        _steps(_make(other), other)
        loop(trainer["Wrapper"], trainer["fit"], model)

    known = run(whole).recording.evidence_of(TrainedOptimizer)
    assert [one.name for one in known] == ["od", name]


def test_rules_know_the_optimizer_that_a_trainer_has_made(run, trainer):
    model = nn.Linear(3, 2)
    captured = script_captures_by(Schedule(1))
    recording = run(lambda: trainer["train"](model, 4), make_captures=captured).recording
    assert len(recording.captured_steps) == 4
    reasons = {one.reason for one in judge(recording).skipped}
    assert reasons.isdisjoint({NO_OPTIMIZER, NO_STEPPER})


def _make(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _steps(od, model):
    for _ in range(3):
        model(torch.ones(4, 3)).square().mean().backward()
        od.step()
        od.zero_grad()
