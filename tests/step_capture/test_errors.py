"""Autograd exceptions that end a script are recorded, others are not."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from gradscope.recording.evidence.failures import AutogradErrorRecord
from tests.nightly import some_on_push
from tests.step_capture.models_to_train import features, mlp


def made():
    model = mlp(0.0)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def sources(recording, error):
    """Return the line of each place that takes part in an error."""
    return {
        position.role: None if position.site is None else recording.sites[position.site].source
        for position in error.locations
    }


def told(recorded):
    """Return the one error that a run has ended with: its kind, and its lines by their role."""
    (captured_step,) = [
        one for one in recorded.captured_steps if one.recording.evidence_of(AutogradErrorRecord)
    ]
    (error,) = captured_step.recording.evidence_of(AutogradErrorRecord)
    return error, sources(captured_step.recording, error)


def freed_within_a_step():
    model, optimizer = made()
    for _ in range(3):
        x, y = features()
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        loss.backward()
        optimizer.step()


def carried_state():
    cell, head = nn.GRUCell(8, 12), nn.Linear(12, 4)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    state = torch.zeros(16, 12)
    for _ in range(8):
        x, y = features()
        state = cell(x, state)
        loss = cross_entropy(head(state), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def saved_tensor_written():
    model, optimizer = made()
    for _ in range(3):
        x, y = features()
        hidden = torch.sigmoid(model(x))
        loss = cross_entropy(hidden, y)
        hidden += 1
        hidden.mul_(2)
        (loss + hidden.square().mean()).backward()
        optimizer.step()


def leaf_written():
    model, optimizer = made()
    for _ in range(3):
        x, y = features()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        model[0].weight.mul_(0.9)


def step_between_two_losses():
    first, second = nn.Linear(8, 8), nn.Linear(8, 4)
    of_first = torch.optim.SGD(first.parameters(), lr=0.1)
    of_second = torch.optim.SGD(second.parameters(), lr=0.1)
    x, y = features()
    hidden = first(x)
    loss = cross_entropy(second(hidden), y)
    other = second(hidden).square().mean()
    loss.backward(retain_graph=True)
    of_second.step()
    other.backward()
    of_first.step()


def twice_around_a_step():
    model, optimizer = made()
    x, y = features()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    loss.backward()


def no_graph():
    model, optimizer = made()
    x, y = features()
    cross_entropy(model(x), y).backward()
    optimizer.step()
    with torch.no_grad():
        loss = cross_entropy(model(x), y)
    loss.backward()


def non_scalar():
    model, _ = made()
    x, y = features()
    loss = cross_entropy(model(x), y, reduction="none")
    loss.backward()


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ torch.ones(3, 3)


def custom_function():
    model, _ = made()
    x, y = features()
    loss = cross_entropy(Fails.apply(model(x)), y)
    loss.backward()


def hook():
    def raises(gradient):
        raise ValueError("no such gradient")

    model, _ = made()
    x, y = features()
    output = model(x)
    output.register_hook(raises)
    cross_entropy(output, y).backward()


@pytest.mark.parametrize(
    ("loop", "kind", "lines"),
    some_on_push(
        [
            (
                freed_within_a_step,
                "freed",
                {"forward": "loss = cross_entropy(model(x), y)", "freed": "loss.backward()"},
            ),
            (
                carried_state,
                "freed",
                {"reuse": "state = cell(x, state)", "call": "loss.backward()"},
            ),
            (saved_tensor_written, "in-place", {"write": "hidden += 1"}),
            (leaf_written, "in-place", {"write": "model[0].weight.mul_(0.9)"}),
            (
                step_between_two_losses,
                "in-place",
                {"forward": "other = second(hidden).square().mean()", "write": "of_second.step()"},
            ),
            (
                twice_around_a_step,
                "freed",
                {"forward": "loss = cross_entropy(model(x), y)", "freed": "loss.backward()"},
            ),
            (no_graph, "no-graph", {"call": "loss.backward()"}),
            (non_scalar, "non-scalar", {"call": "loss.backward()"}),
            (custom_function, "other", {"inside": "return gradient @ torch.ones(3, 3)"}),
            (hook, "other", {"inside": 'raise ValueError("no such gradient")'}),
        ],
        2,
    ),
    ids=lambda one: getattr(one, "__name__", None),
)
def test_an_exception_that_ends_the_script(loop, kind, lines, capture_steps):
    recorded = capture_steps(loop, raises=(RuntimeError, ValueError))
    assert recorded.reasons == []
    error, found = told(recorded)
    assert error.kind == kind
    assert lines.items() <= found.items()


def test_an_exception_from_elsewhere_is_no_captured_step(capture_steps):
    def loop():
        cross_entropy(nn.Linear(8, 4)(torch.randn(2, 8)), torch.zeros(2).long()).backward()
        raise RuntimeError("elsewhere")

    recorded = capture_steps(loop, raises=RuntimeError)
    assert recorded.errors == []
    assert len(recorded.captured_steps) == 1


def test_an_exception_that_the_script_catches_is_no_captured_step(capture_steps):
    def loop():
        model, optimizer = made()
        for _ in range(3):
            x, y = features()
            loss = cross_entropy(model(x), y)
            loss.backward()
            for fails in (loss.backward, torch.zeros(()).backward, model(x).backward):
                with pytest.raises(RuntimeError):
                    fails()
            optimizer.step()

    recorded = capture_steps(loop)
    assert recorded.errors == []
    assert recorded.steps == [0, 1, 2]
    assert recorded.reasons == []


@pytest.mark.nightly
def test_an_exception_after_one_that_was_caught_is_the_one_that_is_reported(capture_steps):
    def loop():
        with pytest.raises(RuntimeError):
            non_scalar()
        carried_state()

    error, _ = told(capture_steps(loop, raises=RuntimeError))
    assert error.kind == "freed"


@pytest.mark.nightly
def test_the_graph_of_a_failed_backward_is_released(capture_steps):
    alive = []

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = torch.ones(1000)
            alive.append(weakref.ref(ctx.kept))
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("always")

    def loop():
        model, optimizer = made()
        for _ in range(6):
            x = features()[0]
            mse_loss(model(x), torch.zeros(16, 4)).backward()
            optimizer.step()
            output = Kept.apply(model(x))
            with pytest.raises(RuntimeError, match="always"):
                output.sum().backward()
            del output
        optimizer.step()
        gc.collect()
        assert [one for one in alive if one() is not None] == []

    assert capture_steps(loop).reasons == []
