"""The sample models: as plain torch, through the Python interface, and from the command line."""

import copy
import gc
import importlib.util
import io
import json
import pickle
import sys
import weakref
from pathlib import Path
from types import ModuleType

import pytest
import torch

import gradscope
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.rules.catalogue import RULES
from gradscope.session.api import inspect_target
from gradscope.target.loading import load_target
from gradscope.target.options import TargetOptions, Trial
from tests.nightly import some_on_push

ROOT = Path(__file__).parents[1]
RULE_NAMES = {rule.name.replace("-", "_") for rule in RULES}
"""Samples of a rule are named after it, and are tested with the rules."""
SAMPLES = sorted(
    path for path in (ROOT / "sample_models").glob("*.py") if path.stem not in RULE_NAMES
)
HEALTHY = {path.stem for path in SAMPLES if path.stem.startswith("healthy_")}
TRAINING_STEPS = 5

LARGEST, NIGHTLY = "healthy_gpt", pytest.mark.nightly
every_sample = pytest.mark.parametrize("path", SAMPLES, ids=[path.stem for path in SAMPLES])
some_samples = pytest.mark.parametrize(
    "path", some_on_push(SAMPLES, 3), ids=[path.stem for path in SAMPLES]
)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def load(name: str) -> ModuleType:
    """Import a sample under its own name, as `pickle` needs it."""
    path = ROOT / "sample_models" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sample(path):
    """The module of the sample `path`."""
    yield load(path.stem)
    del sys.modules[path.stem]


def parts(sample):
    """The model, its inputs, the target and the optimizer, SGD where it builds none."""
    model = sample.build_model()
    *inputs, target = sample.build_batch()
    build = getattr(sample, "build_optimizer", lambda m: torch.optim.SGD(m.parameters(), lr=1e-4))
    return model, inputs, target, build(model)


def gradients(sample) -> dict[str, torch.Tensor | None]:
    """What plain torch leaves in the parameters."""
    model, inputs, target, _ = parts(sample)
    sample.loss_fn(model(*inputs), target).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def inspected(name: str, **options):
    sample = load(name)
    model = sample.build_model()
    return gradscope.inspect(model, sample.build_batch(), sample.loss_fn, **options)


def test_there_are_samples():
    assert len(SAMPLES) >= 7
    assert len(HEALTHY) >= 4


@every_sample
def test_report_equals_plain_backward_and_healthy_samples_have_no_extreme_gradient(path, sample):
    report = gradscope.inspect(
        sample.build_model(), sample.build_batch(), sample.loss_fn, probe_steps=0
    )
    plain = gradients(sample)
    assert [row.name for row in report.parameters] == list(plain)
    for row in report.parameters:
        expected = plain[row.name]
        if expected is None:
            assert row.grad is None, row.name
        else:
            norm = expected.double().norm().item()
            assert row.grad.norm == pytest.approx(norm, rel=1e-6, abs=0), row.name
        if path.stem in HEALTHY:
            assert row.reach == "gradient", row.name
            assert 1e-5 < row.grad.norm < 1e2, row.name


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=NIGHTLY) if one == LARGEST else one for one in sorted(HEALTHY)]
)
def test_healthy_samples_learn(name):
    sample = load(name)
    model, inputs, target, optimizer = parts(sample)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = sample.loss_fn(model(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.97 * losses[0]


@some_samples
def test_watched_training_is_bit_identical_to_plain_training(sample):
    plain, watched = trained(sample, watch=False), trained(sample, watch=True)
    assert plain.keys() == watched.keys()
    # By bytes: the exploding one soon trains on NaN.
    assert [name for name in plain if bits(plain[name]) != bits(watched[name])] == []


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def trained(sample, *, watch: bool) -> dict[str, torch.Tensor]:
    """Train for a few steps; return losses, weights, optimizer state and random state."""
    torch.manual_seed(3)
    model, inputs, target, optimizer = parts(sample)
    losses = []
    for _ in range(TRAINING_STEPS):
        optimizer.zero_grad()
        if watch:
            capture = StepCapture(list(model.parameters()))
            with capture.forward():
                loss = sample.loss_fn(model(*inputs), target)
            capture.backward(loss)
            capture.close()
        else:
            loss = sample.loss_fn(model(*inputs), target)
            loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    moments = [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    return {
        "losses": torch.stack(losses),
        "random state": torch.get_rng_state(),
        **{f"moment {number}": moment for number, moment in enumerate(moments)},
        **model.state_dict(),
    }


@some_samples
def test_inspected_model_can_still_be_copied_pickled_and_trained(sample):
    model, inputs, target, optimizer = parts(sample)
    before = copy.deepcopy(model.state_dict())
    gradscope.inspect(model, (*inputs, target), sample.loss_fn, optimizer=optimizer, probe_steps=2)

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(*inputs), model(*inputs))
    torch.save(model, io.BytesIO())
    sample.loss_fn(model(*inputs), target).backward()
    optimizer.step()


@some_samples
def test_report_keeps_no_tensor_alive(sample):
    model, batch = sample.build_model(), sample.build_batch()
    watched = [weakref.ref(tensor) for tensor in (*model.parameters(), *batch)]
    report = gradscope.inspect(model, batch, sample.loss_fn, probe_steps=1)
    del model, batch
    gc.collect()
    assert report.parameters
    assert [tensor() for tensor in watched if tensor() is not None] == []


def norms(report, kind: str) -> list[float]:
    return [row.grad.norm for row in report.parameters if row.name.endswith(f".{kind}")]


def test_exploding_stack_grows_towards_its_first_layer():
    # A bias gets what arrives at its layer's output, summed over the batch.
    biases = norms(inspected("exploding_stack", probe_steps=0), "bias")
    assert len(biases) == 20
    assert biases[0] > 1e6 * biases[-1]


def test_vanishing_stack_shrinks_towards_its_first_layer():
    weights = norms(inspected("vanishing_stack", probe_steps=0), "weight")
    assert weights[0] < 1e-10 * weights[-1]
    assert min(weights) > 0


def test_detached_branch_gets_no_gradient_rather_than_zero():
    rows = inspected("detached_branch", probe_steps=0).parameters
    cut = [row for row in rows if row.name.startswith("fine.")]
    assert [row.reach for row in cut] == ["none"] * 4
    assert all(row.grad is None and row.reason for row in cut)
    assert all(row.reach == "gradient" for row in rows if row not in cut)


def test_shared_tower_shows_aliases_calls_and_frozen_parameters():
    report = inspected("shared_tower", probe_steps=0)
    rows = {row.name: row for row in report.parameters}
    assert rows["first.weight"].aliases == ("second.weight",)
    assert "second.weight" not in rows
    assert {rows[f"features.{kind}"].reach for kind in ("weight", "bias")} == {"frozen"}
    tower = next(row for row in report.modules if row.path == "tower")
    assert [call.call for call in tower.calls] == [0, 1]


@some_samples
def test_sample_is_a_complete_target(path):
    """Nothing is made up, left out or in need of an option."""
    target = load_target(str(path), TargetOptions(allow_guesses=False))
    report = inspect_target(target, trial=Trial(probe_steps=1), eager=False, command="inspect")
    assert report.target.loss == "loss_fn(output, target)"
    assert report.target.synthetic_loss is False
    assert target.notes == ()
    assert (target.optimizer is not None) == ("def build_optimizer" in path.read_text())
    lines = {row.site.file for row in report.tensors if row.site is not None}
    assert lines == {str(path)}


def test_command_line_inspects_a_sample(gradscope_in):
    done = gradscope_in(ROOT, "inspect", "sample_models/healthy_mlp.py", "--output-format", "json")
    assert done.returncode == 0, done.stderr
    parameters = json.loads(done.stdout)["parameters"]
    assert len(parameters) == len(gradients(load("healthy_mlp")))
