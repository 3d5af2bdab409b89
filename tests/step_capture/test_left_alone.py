"""Captures restore torch, whatever modes, threads and processes a script uses."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gradscope
from tests.nightly import some_on_push
from tests.step_capture.models_to_train import features, mlp, outcome, same
from tests.step_capture.surroundings import SURROUNDED as LOOPS
from tests.step_capture.surroundings import train

PART = {"in_another_thread": 5, "by_turns_in_another_thread": 6}
"""The step that begins in one thread and is made in another is not captured."""


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("name", some_on_push(LOOPS, {0}))
def test_modes_and_threads(name, capture_steps):
    tensors, torch_state, python_state = outcome(LOOPS[name])
    seen = []
    made = capture_steps(lambda: seen.append(outcome(LOOPS[name])))
    ((watched, watched_torch, watched_python),) = seen
    assert len(tensors) == len(watched)
    assert all(map(same, tensors, watched))
    assert (watched_torch, watched_python) == (torch_state, python_state)
    assert made.reasons == []
    assert len(made.captured_steps) >= PART.get(name, 6)


@pytest.mark.nightly
def test_an_exception_in_the_middle_of_a_step(capture_steps):
    def loop():
        model = mlp()
        train(model, 2)
        with torch.device("cpu"):
            x, y = features()
            cross_entropy(model(x), y)
            raise KeyError("in the middle")

    assert capture_steps(loop, raises=KeyError).steps == [0, 1]


def test_an_exception_within_a_backward(capture_steps):
    def raises(_):
        raise KeyError("within")

    def loop():
        model = mlp()
        train(model, 2)
        output = model(features()[0])
        output.register_hook(raises)
        output.sum().backward()

    capture_steps(loop, raises=KeyError)


def test_a_watch_that_is_stopped_within_a_forward():
    watch = gradscope.watch(tensor_every=1)

    class Stopping(nn.Module):
        def forward(self, x):
            watch.stop()
            return x * 2

    watch.start()
    train(nn.Sequential(mlp(), Stopping()), 2)
    assert watch.steps == 0


def test_compiled_code_is_not_captured(capture_steps):
    def loop():
        model = mlp()
        train(model, 2)
        compiled = torch.compile(model, backend="eager")
        train(compiled, 3)
        torch._dynamo.reset()

    made = capture_steps(loop)
    assert made.steps == [0, 1]
    (reason,) = made.reasons
    assert "torch.compile is used" in reason
    assert len(made.recording.steps) == 5


@pytest.mark.nightly
def test_functions_that_the_script_replaces_stay_replaced(capture_steps):
    original = torch.autocast.__enter__

    def own(autocast):
        return original(autocast)

    def loop():
        model = mlp()
        train(model, 5)
        torch.autocast.__enter__ = own
        train(model, 5)

    try:
        capture_steps(loop, tensor_every=6)
        assert torch.autocast.__enter__ is own
    finally:
        torch.autocast.__enter__ = original


def test_a_fault_of_a_look_ends_looks_alone(capture_steps, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr("gradscope.step_capture.records.probe_captured_step", fails)
    made = capture_steps(lambda: train(mlp()))
    assert made.captured_steps == ()
    (reason,) = made.reasons
    assert reason.startswith("ZeroDivisionError: a fault (--no-tensors")
    assert len(made.recording.steps) == 6


@pytest.mark.nightly
def test_a_model_whose_truth_or_length_cannot_be_told(capture_steps):
    class Unsure(nn.Sequential):
        def __len__(self):
            raise TypeError("no length")

    def loop():
        train(Unsure(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))

    assert capture_steps(loop).steps == list(range(6))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("position", "name"),
    some_on_push([(torch.Tensor, "backward"), (torch.nn.functional, "layer_norm")], 2),
)
def test_functions_that_the_script_replaces_run_as_often_as_without(
    position, name, capture_steps, monkeypatch
):
    original, called = getattr(position, name), []

    def own(*args, **kwargs):
        called.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(position, name, own)

    def loop():
        model = nn.Sequential(nn.LayerNorm(8), mlp())
        train(model, 3)

    made = capture_steps(loop)
    assert made.reasons == []
    assert called == [name] * 3
