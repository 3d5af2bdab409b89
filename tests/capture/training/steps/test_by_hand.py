"""Manual steps are steps of the recording, with loss and norms."""

import runpy

import pytest
import torch
from torch import nn

from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.store import load_recording

STEPS = 6
RATE = 0.05


class Seen:
    """What a loop sees itself."""

    def __init__(self):
        self.losses, self.norms = [], []

    def note(self, loss, parameters):
        self.losses.append(loss.item())
        self.norms.append(torch.stack([p.grad.norm() for p in parameters]).norm().item())


def batch():
    return torch.randn(5, 3)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def under_no_grad(seen):
    model = net()
    for _ in range(STEPS):
        loss = model(batch()).pow(2).mean()
        loss.backward()
        seen.note(loss, list(model.parameters()))
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
                p.grad.zero_()


def zeroed_by_the_model(seen):
    model = net()
    for _ in range(STEPS):
        loss = model(batch()).pow(2).mean()
        model.zero_grad()
        loss.backward()
        seen.note(loss, list(model.parameters()))
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(RATE * p.grad)


def through_data(seen):
    model = net()
    for _ in range(STEPS):
        loss = model(batch()).pow(2).mean()
        loss.backward()
        seen.note(loss, list(model.parameters()))
        for p in model.parameters():
            p.data = p.data - RATE * p.grad.data
            p.grad = None


def of_loose_tensors(seen):
    w = torch.randn(3, requires_grad=True)
    b = torch.zeros((), requires_grad=True)
    for _ in range(STEPS):
        loss = (batch() @ w + b - 1).pow(2).mean()
        loss.backward()
        seen.note(loss, [w, b])
        sgd([w, b])


def sgd(parameters):
    with torch.no_grad():
        for p in parameters:
            p -= RATE * p.grad
            p.grad.zero_()


def of_accumulated_gradients(seen):
    model = net()
    for _ in range(STEPS):
        for _ in range(3):
            loss = model(batch()).pow(2).mean() / 3
            loss.backward()
        seen.note(loss, list(model.parameters()))
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
        model.zero_grad()


LOOPS = [
    under_no_grad,
    zeroed_by_the_model,
    through_data,
    of_loose_tensors,
    of_accumulated_gradients,
]


def watched(loop, folder, **options):
    """Run a loop under watch; return the recording and what the loop has seen."""
    torch.manual_seed(0)
    seen = Seen()
    watch = TrainingWatch(folder / "run.gradscope", "run", **options)
    watch.start()
    try:
        loop(seen)
    finally:
        watch.stop()
    return load_recording(folder / "run.gradscope"), seen


def manual_steps(recording):
    return [event for event in recording.events if event.kind == "step"]


@pytest.mark.parametrize("loop", LOOPS, ids=[loop.__name__ for loop in LOOPS])
def test_every_step_is_one_with_its_loss_and_norm(loop, tmp_path):
    recording, seen = watched(loop, tmp_path)
    steps = [step for step in recording.steps if step.optimizer is not None]
    assert [step.optimizer for step in steps] == ["steps by hand"] * STEPS
    assert [step.loss for step in steps] == pytest.approx(seen.losses)
    norms = [dict(event.numbers)["norm"] for event in manual_steps(recording)]
    assert norms == pytest.approx(seen.norms, rel=1e-5)
    assert len(recording.parameter_stats) == STEPS * len(recording.parameters)


@pytest.mark.parametrize(
    "update",
    [
        "p -= rate * p.grad",
        "p.sub_(p.grad, alpha=rate)",
        "p.data -= rate * p.grad.data",
        "p.data = p.data - rate * p.grad",
        "p.copy_(p - rate * p.grad)",
    ],
)
def test_it_is_reported_at_the_line_that_changes_the_weights(update, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "p, rate = torch.ones(3, requires_grad=True), 0.1\n"
        "for _ in range(3):\n"
        "    p.pow(2).sum().backward()\n"
        "    with torch.no_grad():\n"
        f"        {update}\n"
        "    p.grad.mul_(0)\n"
    )
    recording, _ = watched(lambda _: runpy.run_path(str(script)), tmp_path)
    assert len(manual_steps(recording)) == 3
    sites = {recording.sites[event.site].source for event in manual_steps(recording)}
    assert sites == {update}


def test_of_several_lines_that_may_be_it_none_is_reported(tmp_path):
    recording, _ = watched(under_no_grad, tmp_path)  # this file has more of them
    assert {event.site for event in manual_steps(recording)} == {None}


@pytest.mark.parametrize("loop", LOOPS, ids=[loop.__name__ for loop in LOOPS])
def test_the_training_is_the_same(loop, tmp_path):
    torch.manual_seed(0)
    plain = Seen()
    loop(plain)
    _, seen = watched(loop, tmp_path)
    assert (seen.losses, seen.norms) == (plain.losses, plain.norms)


class WithoutStart(nn.Module):
    """Torch's own walks of it fail: its `__init__` does not call that of Module."""

    def __init__(self):
        self.width = 3


class WithOwnWalk(nn.Linear):
    def modules(self):
        raise RuntimeError("the script never asks for these")

    named_modules = named_children = parameters = named_parameters = modules


@pytest.mark.parametrize("kind", [WithoutStart, lambda: WithOwnWalk(3, 1)])
def test_modules_that_cannot_be_walked_do_not_end_the_recording(kind, tmp_path):
    odd = kind()
    recording, seen = watched(of_loose_tensors, tmp_path)
    assert len(manual_steps(recording)) == STEPS == len(seen.losses)
    del odd


def test_names_are_those_of_the_variables(tmp_path):
    recording, _ = watched(of_loose_tensors, tmp_path)
    assert {one.name for one in recording.parameters} == {"w", "b"}


def test_the_script_can_be_ended_after_some(tmp_path):
    def stop(count):
        if count == 3:
            raise SystemExit

    torch.manual_seed(0)
    seen = Seen()
    watch = TrainingWatch(tmp_path / "run.gradscope", "run", on_step=stop)
    watch.start()
    try:
        with pytest.raises(SystemExit):
            under_no_grad(seen)
    finally:
        watch.stop()
    # It is noticed when the next backward begins.
    assert len(seen.losses) == 3
    assert len(manual_steps(load_recording(tmp_path / "run.gradscope"))) == 3


def test_a_step_that_makes_the_weights_nan_is_observed(tmp_path):
    model = net()

    def loop(seen):
        for rate in (RATE, RATE, float("nan"), RATE):
            model.zero_grad()
            loss = model(batch()).pow(2).mean()
            loss.backward()
            seen.note(loss, list(model.parameters()))
            for p in model.parameters():
                p.data -= rate * p.grad

    recording, _ = watched(loop, tmp_path)
    # That NaN becomes NaN once more is no trace of the last.
    assert len(manual_steps(recording)) == 3


def test_the_recording_can_end_after_some(tmp_path):
    recording, seen = watched(under_no_grad, tmp_path, max_steps=2)
    assert (len(manual_steps(recording)), len(seen.losses)) == (2, STEPS)


def test_an_attack_on_an_input_is_no_step(tmp_path):
    def attack(_):
        model, features = net(), batch()
        for _ in range(STEPS):
            features = features.detach().requires_grad_()
            model(features).sum().backward()
            features = features + 0.1 * features.grad.sign()

    recording, _ = watched(attack, tmp_path)
    assert not manual_steps(recording)
    assert len(recording.parameters) <= 4


def test_a_fresh_input_in_every_pass_is_no_parameter(tmp_path):
    def saliency(_):
        for _ in range(STEPS):
            features = batch().requires_grad_()
            features.tanh().sum().backward()

    recording, _ = watched(saliency, tmp_path)
    assert not manual_steps(recording)
    assert len(recording.parameters) <= 1


def test_averages_beside_an_optimizer_are_no_steps(tmp_path):
    def averaged(_):
        model, average = net(), net()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (model(batch()) + average(batch())).mean().backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(average.parameters(), model.parameters(), strict=True):
                    p.lerp_(q, 0.1)

    recording, _ = watched(averaged, tmp_path)
    assert {step.optimizer for step in recording.steps if step.optimizer} == {"SGD(lr=0.05)"}


def test_steps_in_compiled_code_are_noticed_by_what_they_change(run):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        torch.compile(optimizer.step, backend="eager")
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            torch.optim.SGD.step.__wrapped__(optimizer)  # without its hooks, as compiled code

    made = run(loop)
    assert [step.optimizer for step in made.recording.steps] == ["SGD(lr=0.1)"] * 4
    assert [event.optimizer for event in made.recording.events if event.kind == "step"] == [0] * 4
    assert made.kinds(1) == ["zero", "backward", "step"]
    assert all(numbers["fresh"] == 2 for numbers in made.numbers("step"))


def test_steps_beside_a_compiled_model_are_those_of_its_optimizer(run):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(model, backend="eager")
        for _ in range(4):
            for _ in range(2):
                compiled(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    made = run(loop)
    assert [step.optimizer for step in made.recording.steps] == ["SGD(lr=0.1)"] * 4 + [None]
    assert not any(numbers["manual"] for numbers in made.numbers("step"))
