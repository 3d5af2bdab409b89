"""Captures end before they cost too much, and hold little memory."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gradscope
from gradscope.recording.evidence.parameters import DroppedRecord
from gradscope.step_capture import mode
from tests.nightly import some_on_push
from tests.step_capture.models_to_train import features, mlp


def trained(model, optimizer):
    x, y = features()
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.nightly
@pytest.mark.parametrize("has_gradients", some_on_push([True, False], 2))
def test_the_graphs_of_an_evaluation_are_released(has_gradients, capture_steps):
    alive, most = [], []

    class Kept(torch.autograd.Function):
        """Tells by what it keeps whether its graph is alive."""

        @staticmethod
        def forward(ctx, x):
            ctx.kept = nn.Module()
            alive.append(weakref.ref(ctx.kept))
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp(0.0)

        def forward(self, x):
            return Kept.apply(self.inner(x))

    def loop():
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            trained(model, optimizer)
            correct = loss = 0.0
            for _ in range(5):
                with torch.set_grad_enabled(has_gradients):
                    x, y = features()
                    output = model(x)
                    correct += (output.argmax(1) == y).sum().item()
                    loss += cross_entropy(output, y).item()
            gc.collect()
            most.append(sum(one() is not None for one in alive))
        trained(model, optimizer)

    recorded = capture_steps(loop)
    assert recorded.steps == [0, 1, 2]
    assert recorded.reasons == []
    # The last one is the script's own; a training step's is freed by its backward.
    assert max(most) <= (4 if has_gradients else 2)


@pytest.mark.nightly
def test_calls_without_gradients_are_noticed_up_to_a_number(capture_steps, monkeypatch):
    monkeypatch.setattr(mode, "MOST_WITHOUT_GRAD", 50)
    monkeypatch.setattr(mode, "MOST_CALLS", 200)

    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                for _ in range(100):
                    model(features()[0])
            trained(model, optimizer)

    recorded = capture_steps(loop)
    assert recorded.steps == [0, 1, 2]
    assert all(one.recording.tensor_stats for one in recorded.captured_steps)


@pytest.mark.nightly
def test_a_capture_ends_in_preparations_that_take_too_long(capture_steps, monkeypatch):
    monkeypatch.setattr(mode, "MOST_CALLS", 300)

    def loop():
        model = mlp(0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            for _ in range(200 if step == 1 else 0):
                model(features()[0])
            trained(model, optimizer)

    recorded = capture_steps(loop)
    assert recorded.steps == [0, 2, 3]
    assert recorded.reasons == []
    assert len(recorded.recording.steps) == 4


def test_a_model_that_is_called_often_before_its_backward(capture_steps):
    def loop():
        policy, unused = nn.Linear(8, 4), nn.Linear(8, 4)
        optimizer = torch.optim.SGD([*policy.parameters(), *unused.parameters()], lr=0.1)
        for _ in range(2):
            outputs = [policy(features()[0]).logsumexp(1).mean() for _ in range(20)]
            unused(features()[0])
            optimizer.zero_grad()
            torch.stack(outputs).sum().backward()
            optimizer.step()

    for one in capture_steps(loop).captured_steps:
        recording = one.recording
        calls = [
            call for call in recording.calls if recording.modules[call.module].path == "policy"
        ]
        assert len(calls) == 20
        assert all(call.outputs for call in calls)
        assert recording.evidence_of(DroppedRecord) == ()


def test_a_graph_that_is_too_large_is_captured_no_more(monkeypatch):
    monkeypatch.setattr("gradscope.step_capture.schedule._MOST_NODES", 50)
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with gradscope.watch() as watch:
        for _ in range(3):
            value = weight
            for _ in range(60):
                value = value * 1.0
            value.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    recording = watch.report().recording
    assert recording.captured_steps == ()
    (skipped,) = (one for one in recording.skipped if one.what.startswith("tensors"))
    assert "operations is too large" in skipped.reason
    assert sum(step.optimizer is not None for step in recording.steps) == 3
