"""Trainers: their wrappers are no optimizers, and names are the script's."""

import sys

import pytest
import torch
from torch import nn

from gradscope.analysis.recording_index import users_sites
from gradscope.capture.training.trainer_arguments import limit_argument, trainer_arguments
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

def train_new(make, wrap):
    train(wrap(make()) if wrap else make(), 3)
"""
"""As in accelerate and Lightning."""


@pytest.fixture(name="trainer")
def _trainer():
    names: dict[str, object] = {"__name__": "trainer"}
    exec(compile(TRAINER, "/venv/lib/site-packages/trainer.py", "exec"), names)
    return names


@pytest.mark.parametrize("wrap", [None, nn.DataParallel])
def test_a_model_that_only_a_trainer_holds_is_named_by_its_class(wrap, run, trainer):
    made = run(lambda: trainer["train_new"](lambda: nn.Linear(3, 2), wrap))
    assert {one.name for one in made.recording.parameters} == {"Linear.weight", "Linear.bias"}


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


CLOSURES = """
import torch

def fit(part, target, optimizer, max_norm, steps):
    for _ in range(steps):
        def closure():
            optimizer.zero_grad()
            part(torch.ones(4, 3)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(target.parameters(), max_norm)
        optimizer.step(closure)
"""
"""As in Lightning: clips in the closure, and calls parts of the model only."""


@pytest.fixture(name="fit")
def _fit():
    names: dict[str, object] = {"__name__": "trainer"}
    exec(compile(CLOSURES, "/venv/lib/site-packages/closures.py", "exec"), names)
    return names["fit"]


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2)
        self.unused = nn.Linear(2, 2)


def _fit_parts(fit):
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        fit(model.net, model, optimizer, 0.5, 3)

    return loop


def test_clip_in_a_closure_gets_its_gradients(run, fit):
    made = run(_fit_parts(fit))
    assert [one["fresh"] for one in made.numbers("clip-norm")] == [2, 2, 2]
    assert [(one["clipped"], one["stale"]) for one in made.numbers("step")] == [(2, 0)] * 3


def test_call_of_a_part_is_a_forward_of_its_model(run, fit):
    made = run(_fit_parts(fit))
    assert [one.get("rows") for one in made.numbers("backward")] == [4, 4, 4]
    names = [one.name for one in made.recording.parameters]
    assert names == [
        f"model.{one}" for one in ("net.weight", "net.bias", "unused.weight", "unused.bias")
    ]


def test_lines_of_a_trainer_lead_to_the_call_of_the_user(run, fit):
    made = run(_fit_parts(fit))
    (step, *_) = made.events("step")
    assert made.line(step) == ""
    shown = users_sites(made.recording)[step.site]
    assert shown.source == "fit(model.net, model, optimizer, 0.5, 3)"


def test_parameters_of_a_model_made_before_have_the_lines_of_its_class(run, fit):
    recording = run(_fit_parts(fit)).recording
    lines = [recording.sites[one.site].source for one in recording.parameters]
    assert lines == ["self.net = nn.Linear(3, 2)"] * 2 + ["self.unused = nn.Linear(2, 2)"] * 2


SCRIPTS = {
    "equal": ("Trainer(lr=1.0, gradient_clip_val=1.0)", 1.0, 1),
    "among others": ("a = Trainer(max_grad_norm=0.1)\nb = Trainer(max_grad_norm=1)", 1.0, 2),
    "on a line of its own": ("Trainer(\n  epochs=3,\n  max_grad_norm=1.0,\n)", 1.0, 3),
    "in a dictionary": ("config = {'lr': 1.0,\n  'gradient_clipping': 1.0}", 1.0, 2),
    "variable": ("Trainer(max_grad_norm=limit)", 1.0, 1),
    "default": ("args = TrainingArguments('out')", 1.0, 1),
    "default of TRL": ("from trl import SFTConfig\nargs = SFTConfig('out')", 1.0, 2),
    "config of others": ("args = SFTConfig('out')", 1.0, None),
    "another value": ("Trainer(max_grad_norm=0.5)", 1.0, None),
    "twice": ("Trainer(max_grad_norm=1.0)\nTrainer(max_grad_norm=1.0)", 1.0, None),
    "nowhere": ("Trainer()", 1.0, None),
}


@pytest.mark.parametrize(("text", "limit", "line"), SCRIPTS.values(), ids=SCRIPTS)
def test_argument_that_sets_the_limit(text, limit, line, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(f"def run():\n    return frame()\n{text}\n")
    names: dict[str, object] = {"frame": lambda: sys._getframe(1)}
    code = compile(file.read_text(), str(file), "exec")
    exec(compile("def run():\n    return frame()\n", str(file), "exec"), names)
    assert code.co_filename == str(file)
    found = limit_argument([names["run"]()], limit)
    assert (found and found.number) == (line and line + 2)


def test_clip_of_a_trainer_is_at_the_argument_of_the_user(run, fit):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arguments = {"max_grad_norm": 0.25}
    made = run(lambda: fit(model, model, optimizer, arguments["max_grad_norm"], 2))
    assert {made.line(one) for one in made.events("clip-norm")} == {
        'arguments = {"max_grad_norm": 0.25}'
    }


def test_clip_of_the_users_own_is_at_its_call(run):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names: dict[str, object] = {}
    text = "import torch\ndef clip_(p, n):\n    torch.nn.utils.clip_grad_norm_(p, n)\n"
    exec(compile(text, "/venv/lib/site-packages/accelerator.py", "exec"), names)
    clip_ = names["clip_"]
    known = {"max_grad_norm": 0.125}

    def loop():
        for _ in range(2):
            model(torch.ones(4, 3)).square().mean().backward()
            clip_(model.parameters(), known["max_grad_norm"])
            optimizer.step()

    made = run(loop)
    assert {made.line(one) for one in made.events("clip-norm")} == {
        'clip_(model.parameters(), known["max_grad_norm"])'
    }


def test_model_that_a_trainer_wraps_keeps_the_name_of_the_user(run):
    names: dict[str, object] = {}
    text = (
        "import torch\ndef train(wrapper, optimizer):\n"
        "    for _ in range(2):\n"
        "        wrapper(torch.ones(4, 3)).mean().backward()\n        optimizer.step()\n"
    )
    exec(compile(text, "/venv/lib/site-packages/trainer2.py", "exec"), names)
    classifier = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)

    def loop():
        names["train"](nn.DataParallel(classifier), optimizer)

    known = [one.name for one in run(loop).recording.parameters]
    assert known == ["classifier.weight", "classifier.bias"]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("Trainer(learning_rate=1e-3)", [1]),
        ("options = {\n 'other': 1,\n 'learning_rate': 1e-3,\n}\nTrainer(**options)", [3]),
        ("options = dict(\n learning_rate=1e-3)\nTrainer(**options)", [2]),
        ("options: dict = {'learning_rate': 1e-3}\nTrainer(**options)", [1]),
        ("Trainer(**{\n 'learning_rate': 1e-3})", [2]),
        ("options = {'learning_rate': 1e-3}\nother(**options)", []),
        ("options = {'learning_rate': None}\nTrainer(**options)", []),
        # The entry that counts is not known.
        ("options = {'learning_rate': 1}\noptions['learning_rate'] = 2\nTrainer(**options)", []),
        ("options = {'learning_rate': 1}\noptions |= more\nTrainer(**options)", []),
        ("options = {'learning_rate': 1}\noptions.update(more)\nTrainer(**options)", []),
        ("options = {'learning_rate': 1}\noptions = {}\nTrainer(**options)", []),
        ("Trainer(**load())", []),
    ],
)
def test_entry_of_a_dictionary_is_the_argument(tmp_path, source, lines):
    file = tmp_path / "train.py"
    file.write_text(source)
    found = list(trainer_arguments(str(file)))
    assert [line.number for _, line in found] == lines
    assert {kind for kind, _ in found} <= {"learning rate"}
