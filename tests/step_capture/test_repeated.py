"""Plain captures: the structure of an earlier one, and statistics of their own."""

import math
import sqlite3
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.failures import NonfiniteRecord
from gradscope.recording.evidence.forward import ForwardStat
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.repetitions import NOT_IN_EVERY_STEP
from gradscope.recording.store import load_recording, save_recording
from gradscope.step_capture.schedule import FIRST, FULL_EVERY, Schedule, Thoroughness
from tests.step_capture.models_to_train import features, mlp


def train(steps, model=None, between=lambda step, model, optimizer: None):
    model = model or mlp(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        between(step, model, optimizer)
        x, y = features()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def skip_reason(captured_step, name):
    records = captured_step.recording.evidence_of(ProbeRecord)
    return next(one.skip_reason for one in records if one.name == name)


def captured_in_full(schedule, steppers):
    """Return the steps that are captured in full, of which the given optimizers make each."""
    thoroughness, found = Thoroughness(schedule), []
    for number, stepper in enumerate(steppers):
        is_full = schedule.is_due() and thoroughness.is_full()
        if is_full:
            found.append(number)
        thoroughness.stepped(stepper, in_full=is_full)
        schedule.stepped(stepper)
    return found


def test_steps_after_the_first_repeat_their_structure(capture_steps):
    made = capture_steps(lambda: train(8))
    assert [one.same_as for one in made.captured_steps] == [None] * FIRST + [FIRST - 1] * 4
    first, last = made.captured_steps[FIRST - 1].recording, made.captured_steps[-1].recording
    assert (last.nodes, last.calls, last.sites) == (first.nodes, first.calls, first.sites)
    assert skip_reason(made.captured_steps[0], "forward") is None
    assert skip_reason(made.captured_steps[-1], "forward") == NOT_IN_EVERY_STEP
    assert skip_reason(made.captured_steps[-1], "comparisons") is None
    assert not last.evidence_of(ForwardStat)


def test_numbers_of_a_repeated_structure_are_those_of_the_step(capture_steps):
    gradients = []

    def between(step, model, optimizer):
        if step:
            gradients.append([float(p.grad.norm()) for p in model.parameters()])

    made = capture_steps(lambda: train(8, between=between))
    for one, expected in zip(made.captured_steps, gradients, strict=False):
        norms = [stat.gradient.norm for stat in one.recording.parameter_stats]
        assert norms == pytest.approx(expected, rel=1e-6)
    tensors = [
        [stat.gradient.norm for stat in one.recording.tensor_stats]
        for one in made.captured_steps[-3:]
    ]
    assert tensors[0] != tensors[1] != tensors[2]
    assert all(norm > 0 for norms in tensors for norm in norms)


class Branching(nn.Module):
    """Takes another way in its seventh call."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = mlp(0.0), 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * 2 if self.calls == 7 else self.inner(x)


def test_another_graph_is_recorded_anew(capture_steps):
    made = capture_steps(lambda: train(9, Branching()))
    assert [one.same_as is None for one in made.captured_steps[FIRST:]] == [
        False,
        False,
        True,
        False,
        False,
    ]
    operations = [len(one.recording.nodes) for one in made.captured_steps]
    assert operations[6] == operations[5] + 1
    assert operations[7] == operations[5]


@pytest.mark.nightly
def test_a_frozen_parameter_is_another_structure(capture_steps):
    def between(step, model, optimizer):
        if step == 6:
            next(model.parameters()).requires_grad_(False)

    made = capture_steps(lambda: train(8, between=between))
    reach = [one.recording.parameter_stats[0].reach for one in made.captured_steps]
    assert reach == ["gradient"] * 6 + ["frozen"] * 2
    assert made.captured_steps[6].same_as is None


@pytest.mark.nightly
def test_a_learning_rate_is_that_of_the_step(capture_steps):
    def between(step, model, optimizer):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)

    made = capture_steps(lambda: train(8, between=between))
    rates = [
        one.groups[0].learning_rate
        for captured_step in made.captured_steps
        for one in captured_step.recording.evidence_of(OptimizerRecord)
    ]
    assert rates == pytest.approx([0.1 / (1 + step) for step in range(8)])
    assert made.captured_steps[-1].same_as is not None


class Logarithm(nn.Module):
    """Computes the logarithm of a negative number in its seventh call."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = mlp(0.0), 0

    def forward(self, x):
        self.calls += 1
        output = self.inner(x)
        return output.exp().sub(1e6 if self.calls == 7 else -1).log()


@pytest.mark.nightly
def test_the_origin_of_a_nan_is_known_in_a_plain_step(capture_steps):
    made = capture_steps(lambda: train(7, Logarithm()))
    broken = made.captured_steps[6].recording
    assert not math.isfinite(broken.steps[0].loss)
    origins = [one for one in broken.evidence_of(NonfiniteRecord) if one.reaches_loss]
    assert [one.operation for one in origins] == ["log"]
    assert "output.exp()" in broken.sites[origins[0].site].source
    assert made.captured_steps[5].same_as is not None


class Masked(nn.Module):
    """Attends to no position at all in its seventh call."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = mlp(0.0), 0

    def forward(self, x):
        self.calls += 1
        scores = self.inner(x)
        mask = torch.zeros(scores.shape, dtype=torch.bool)
        mask[:, 0] = True
        if self.calls == 7:
            mask[0] = True
        return scores.masked_fill(mask, float("-inf")).softmax(-1) + scores


@pytest.mark.nightly
def test_a_mask_that_blocks_a_row_is_found_in_a_plain_step(capture_steps):
    made = capture_steps(lambda: train(7, Masked()))
    assert made.captured_steps[5].same_as is not None
    records = made.captured_steps[6].recording.evidence_of(NonfiniteRecord)
    root = next(one for one in records if one.reaches_loss)
    assert (root.operation, root.blocked_rows) == ("softmax", 1)
    assert {one.operation for one in records} == {"masked_fill", "softmax"}


@pytest.mark.nightly
def test_a_recording_holds_a_repeated_structure_once(tmp_path, capture_steps):
    made = capture_steps(lambda: train(12))
    path = tmp_path / "again.gradscope"
    save_recording(made.recording, path)
    assert load_recording(path).captured_steps == made.captured_steps
    with closing(sqlite3.connect(path)) as base:
        owners = [owner for (owner,) in base.execute("SELECT DISTINCT look FROM look_node")]
        rows = base.execute("SELECT DISTINCT look FROM look_tensor_gradient").fetchall()
    assert owners == list(range(FIRST))
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (1, [*range(FIRST), 3 + FULL_EVERY, 3 + 2 * FULL_EVERY]),
        (60, [*range(FIRST), 60, 120]),
    ],
)
def test_the_first_steps_and_few_later_ones_are_captured_in_full(every, expected):
    assert captured_in_full(Schedule(every), [0] * 125) == expected


def test_each_optimizer_has_steps_that_are_captured_in_full():
    found = captured_in_full(Schedule(1), [0, 1] * 80)
    later = [number for number in found if number > 2 * FIRST]
    assert {number % 2 for number in later} == {0, 1}
    assert len(later) <= 6


def test_trouble_is_captured_in_full():
    schedule = Schedule(1)
    thoroughness, found = Thoroughness(schedule), []
    for number in range(30):
        if number == 20:
            schedule.request()
        if schedule.is_due() and thoroughness.is_full():
            found.append(number)
        thoroughness.stepped(0, in_full=number in found)
        schedule.stepped(0)
    assert found[: FIRST + 1] == [*range(FIRST), 20]
