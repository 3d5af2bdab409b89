"""Custom functions of a script, which are checked once it is over."""

import gc
import sys
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

from gradscope.capture.training.watch import TrainingWatch
from gradscope.launch.execution import RETURNED
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.step_capture import function_inputs
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by
from tests.nightly import some_on_push
from tests.rules.autograd.custom_functions import Around, function
from tests.rules.autograd.test_right_custom_gradients import CHOSEN, RIGHT, LearnedStep


def trained(apply, steps: int = 4) -> nn.Module:
    """Return a model after some steps, the same for the same function."""
    torch.manual_seed(0)
    model = Around(apply)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(7, 5)).square().mean().backward()
        optimizer.step()
    return model


def recorded(loop, folder, *, ending=RETURNED, checks_functions: bool = True):
    path = folder / "run.gradscope"
    captures = script_captures_by(Schedule(None), checks_functions=checks_functions)
    watch = TrainingWatch(path, "run", make_captures=captures)
    watch.start()
    try:
        loop()
    finally:
        watch.stop(ending)
    return load_recording(path)


def outcome(recording) -> CustomFunctionRecord:
    (record,) = recording.evidence_of(CustomFunctionRecord)
    return record


def accusations(recording) -> list:
    return [one for one in judge(recording).findings if one.rule == "GS505"]


class LearnedStepOfTenth:
    """A quantizer with a learned step (LSQ)."""

    @staticmethod
    def apply(x: Tensor) -> Tensor:
        return LearnedStep.apply(x, torch.tensor(0.1, requires_grad=True))


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2  # the incoming gradient is missing


def test_a_wrong_backward_is_an_error_at_its_return(tmp_path):
    recording = recorded(lambda: trained(Cube.apply), tmp_path)
    record = outcome(recording)
    assert (record.outcome, record.inputs[0].name) == ("wrong", "x")
    (finding,) = accusations(recording)
    assert finding.severity == "error"
    assert finding.location.source.startswith("return 3 * x**2")
    assert set(finding.parameters) == {"model.first.weight", "model.first.bias"}


def one_after_the_other(functions):
    def apply(x):
        for one in functions:
            x = one(x).reshape(x.shape) * 0.5 + x
        return x

    return apply


def test_right_functions_are_right(tmp_path):
    recording = recorded(lambda: trained(one_after_the_other(RIGHT.values()), 2), tmp_path)
    records = recording.evidence_of(CustomFunctionRecord)
    names = {"Swish", "ReLU", "Linear", "Scale", "Exp", "MeanAndNorm", "Dropout"}
    assert {one.name: one.outcome for one in records} == dict.fromkeys(names, "right")
    assert not accusations(recording)


def test_chosen_gradients_are_left_alone(tmp_path):
    functions = [one.apply for one in (*CHOSEN.values(), LearnedStepOfTenth)]
    recording = recorded(lambda: trained(one_after_the_other(functions), 2), tmp_path)
    outcomes = [one.outcome for one in recording.evidence_of(CustomFunctionRecord)]
    assert outcomes == ["chosen"] * len(functions)
    assert not accusations(recording)


def test_inputs_are_those_of_the_call_and_not_of_a_later_line(tmp_path):
    """The forward overwrites its variable: the kept inputs come before its first operation."""

    def forward(ctx, x):
        x = x.reshape(-1)[:6] * 2
        x = x.exp()
        ctx.save_for_backward(x)
        return x

    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return torch.cat([2 * grad * result, torch.zeros(36)]).view(7, 6)

    custom = function(forward, backward)
    recording = recorded(lambda: trained(lambda x: x + custom.apply(x)), tmp_path)
    assert outcome(recording).outcome == "right"


@pytest.mark.nightly
def test_no_function_is_called_before_the_last_line(tmp_path):
    calls = []
    custom = function(lambda ctx, x: (calls.append(1), x * 2)[1], lambda ctx, g: g * 3)
    during = []

    def loop():
        trained(custom.apply, 4)
        during.append(len(calls))

    recording = recorded(loop, tmp_path)
    assert during == [4]
    assert len(calls) > 4
    assert outcome(recording).outcome == "wrong"


def test_training_and_random_state_stay_bit_identical(tmp_path):
    apply = RIGHT["random"]
    plain, after = trained(apply), torch.random.get_rng_state()
    models = []
    recorded(lambda: models.append(trained(apply)), tmp_path)
    assert torch.equal(torch.random.get_rng_state(), after)
    for one, other in zip(plain.parameters(), models[0].parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one.grad, other.grad)


@pytest.mark.nightly
def test_what_a_function_prints_or_raises_stays_within(tmp_path, capsys):
    calls = []

    def forward(ctx, x):
        calls.append(1)
        if len(calls) > 4:
            sys.stdout.write("again")
            raise SystemExit(3)
        return x * 2

    custom = function(forward, lambda ctx, g: g)
    recording = recorded(lambda: trained(custom.apply), tmp_path)
    assert capsys.readouterr().out == ""
    assert outcome(recording).outcome == "unchecked"
    assert any("sys.exit" in note.reason for note in recording.skipped)
    assert not accusations(recording)


def trained_with(custom, settings):
    trained(lambda x: custom.apply(x, settings))
    return settings


RAISED = RunEnding(kind="raised", code=1)


class Settings:
    factor = 2.0


@pytest.mark.nightly
def test_objects_of_the_script_are_not_held(tmp_path):
    custom = function(lambda ctx, x, s: x * s.factor, lambda ctx, g, *_: (g, None))
    alive = []

    def loop():
        held = weakref.ref(trained_with(custom, Settings()))
        gc.collect()
        alive.append(held() is not None)

    recording = recorded(loop, tmp_path)
    assert alive == [False]
    assert "object of the script (Settings)" in outcome(recording).reason


def test_large_inputs_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(function_inputs, "_MOST_BYTES", 7 * 6 * 4 - 1)
    recording = recorded(lambda: trained(Cube.apply), tmp_path)
    assert outcome(recording).reason == "its inputs are too large"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "why", some_on_push(["several ranks", "the script continues", "it raised"], 3)
)
def test_where_the_functions_may_not_run(why, tmp_path, monkeypatch):
    if why == "several ranks":
        monkeypatch.setenv("WORLD_SIZE", "2")
    recording = recorded(
        lambda: trained(Cube.apply),
        tmp_path,
        ending=RAISED if why == "it raised" else RETURNED,
        checks_functions=why != "the script continues",
    )
    assert not recording.evidence_of(CustomFunctionRecord)
    assert not accusations(recording)
    reasons = {one.rule: one.reason for one in judge(recording).skipped}
    assert "checked after a script" in reasons["GS505"]


class Twice(Cube):
    """Inherits its forward."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


@pytest.mark.nightly
def test_an_inherited_forward_belongs_to_the_class_that_is_applied(tmp_path):
    record = outcome(recorded(lambda: trained(Twice.apply), tmp_path))
    assert (record.name, record.outcome) == ("Twice", "right")


@pytest.mark.nightly
def test_a_decorated_forward_with_further_arguments(tmp_path):
    class Weighted(Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, *weights):
            ctx.weights = weights
            return x * sum(weights)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            return (grad * ctx.weights[0], *(None for _ in ctx.weights))

    record = outcome(recorded(lambda: trained(lambda x: Weighted.apply(x, 2.0, 3.0)), tmp_path))
    assert record.outcome == "wrong"
    assert record.inputs[0].factor == pytest.approx(2 / 5)


def identity(x: Tensor) -> Tensor:
    return x


@pytest.mark.nightly
def test_without_functions_there_is_nothing_to_check(tmp_path):
    recording = recorded(lambda: trained(identity), tmp_path)
    assert not recording.evidence_of(CustomFunctionRecord)
    assert "GS505" not in {one.rule for one in judge(recording).skipped}
