"""Modes and subclasses of a script do not see gradscope's calls."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.capture.training.watch import TrainingWatch
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

STEPS = 4


def train(parameters, loss):
    """Steps by an optimizer, with everything that is watched."""
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        loss().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls[str(function)] += 1
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls[str(operation)] += 1
        return operation(*args, **(kwargs or {}))


def under_mode(kind):
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    with kind() as mode:
        train(list(model.parameters()), lambda: model(x).square().mean())
    return mode.calls


def under_mode_by_classes():
    """With as many examples as classes, the logits may be those of pairs."""
    model, x = nn.Linear(3, 4), torch.eye(4)[:, :3]
    with Operations() as mode:
        targets = x.argmax(1)
        train(list(model.parameters()), lambda: nn.functional.cross_entropy(model(x), targets))
    return mode.calls


def under_mode_with_custom_function():
    """Its backward gets copies of gradients, and the large one is measured at once."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    model, x = nn.Sequential(nn.Linear(3, 40), nn.Linear(40, 2)), torch.ones(3000, 3)
    with Operations() as mode:

        def loss():
            hidden = model[0](x)
            return (model[1](Doubled.apply(hidden)) + hidden.sum()).square().mean()

        train(list(model.parameters()), loss)
    return mode.calls


def on_subclass():
    calls = Counter()

    class Counted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls[str(function)] += 1
            return super().__torch_function__(function, types, args, kwargs or {})

    weight = nn.Parameter(torch.ones(4, 3).as_subclass(Counted))
    calls.clear()
    train([weight], lambda: weight.square().mean())
    return calls


@pytest.mark.parametrize(
    "make_captures", [None, script_captures_by(Schedule(1))], ids=["", "looked at"]
)
@pytest.mark.parametrize(
    "counted",
    [
        lambda: under_mode(Functions),
        lambda: under_mode(Operations),
        under_mode_by_classes,
        under_mode_with_custom_function,
        on_subclass,
    ],
    ids=["functions", "operations", "operations by classes", "custom function", "subclass"],
)
def test_calls_of_gradscopes_own_are_not_observed(counted, make_captures, run):
    seen = []
    recording = run(lambda: seen.append(counted()), make_captures=make_captures).recording
    assert seen == [counted()]
    assert len(recording.steps) == STEPS
    assert bool(recording.captured_steps) == (make_captures is not None)
    assert recording.finished


def test_a_module_may_get_an_object_that_has_no_class(run):
    class Classless:
        @property
        def __class__(self):
            raise RuntimeError("by the script")

    class Model(nn.Linear):
        def forward(self, x, _, *, more):
            return super().forward(x), more

    def loop():
        model, odd = Model(3, 2), Classless()
        train(
            list(model.parameters()),
            lambda: model(torch.ones(4, 3), odd, more=[odd])[0].square().mean(),
        )

    recording = run(loop, make_captures=script_captures_by(Schedule(1))).recording
    assert len(recording.steps) == STEPS
    assert recording.captured_steps
    assert recording.finished


def on_meta():
    model = nn.Linear(3, 2)
    train(list(model.parameters()), lambda: model(torch.ones(4, 3)).square().mean())


@pytest.fixture
def default_device():
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("default_device")
def test_default_devices_come_and_go(run):
    def loop():
        torch.set_default_device("meta")
        on_meta()
        torch.set_default_device("cpu")
        on_meta()
        model, x = nn.Linear(3, 2), torch.ones(4, 3)
        torch.set_default_device("meta")
        train(list(model.parameters()), lambda: model(x).square().mean())

    recording = run(loop).recording
    assert len(recording.steps) == 3 * STEPS
    assert recording.finished


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tensors_made_in_inference_mode_are_no_reason_to_skip(dtype, run):
    model = nn.Linear(100, 60, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.inference_mode():
        unused = nn.Linear(3, 2)
        gradients = [torch.ones_like(parameter) for parameter in model.parameters()]

    def loop():
        unused(torch.ones(4, 3))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()
        model(torch.ones(4, 100, dtype=dtype)).square().mean().backward()
        optimizer.step()

    made = run(loop)
    assert made.recording.finished
    assert made.numbers("step")[0]["norm"] == pytest.approx(6060**0.5)
    assert len(made.recording.steps) == 2


def test_exceptions_leave_modes_as_they_were(tmp_path, monkeypatch, capsys):
    watch = TrainingWatch(tmp_path / "run.gradscope", "gradscope run train.py")
    watch.start()
    try:
        monkeypatch.setattr(watch._running._writer, "write", lambda _: 1 / 0)
        with Functions() as functions, Operations() as operations:
            on_meta()
            functions.calls.clear()
            operations.calls.clear()
            torch.ones(2).add(1)
    finally:
        watch.stop()
    assert functions.calls.total() == 2
    assert operations.calls.total() == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
