"""Tests which steps are captured."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.store import load_recording
from gradscope.step_capture.schedule import FIRST, Schedule
from gradscope.step_capture.script_captures import script_captures_by
from tests.nightly import some_on_push
from tests.step_capture.loops_to_watch import gradient_penalty
from tests.step_capture.models_to_train import features, mlp


def captured(schedule, steps, optimizers=lambda number: 0):
    """Return the steps that a schedule names, of which the given optimizers make each."""
    found = []
    for number in range(steps):
        if schedule.is_due():
            found.append(number)
        schedule.stepped(optimizers(number))
    return found


def train(steps, model=None, optimizer=None):
    model = model or mlp()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = features()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("every", "expected"),
    [(0, [0, 1, 2, 3]), (10, [0, 1, 2, 3, 10, 20]), (1, list(range(25))), (100, [0, 1, 2, 3])],
)
def test_the_first_steps_and_every_nth(every, expected):
    assert captured(Schedule(every), 25) == expected


def test_steps_that_are_named():
    assert captured(Schedule(0, [3, 7, 24]), 25) == [0, 1, 2, 3, 7, 24]


def test_each_optimizer_has_its_turn():
    schedule = Schedule(100)
    schedule.made(0)
    schedule.made(1)
    # Five steps of a critic for each of a generator.
    turns = [int(number % 6 == 5) for number in range(124)]
    found = captured(schedule, 124, turns.__getitem__)
    assert sum(turns[number] for number in found if number < 100) == FIRST
    later = [number for number in found if number >= 100]
    assert later == list(range(100, 102))
    assert {turns[number] for number in later} == {0, 1}


def test_an_optimizer_that_never_steps_is_not_waited_for_forever():
    schedule = Schedule(0)
    schedule.made(0)
    schedule.made(1)
    found = captured(schedule, 200)
    assert found == list(range(len(found)))
    assert len(found) < 50


def test_an_optimizer_made_for_each_step_is_not_captured_forever():
    schedule = Schedule(0)
    found = []
    for number in range(2000):
        schedule.made(number)
        found += [number] if schedule.is_due() else []
        schedule.stepped(number)
    assert found == list(range(len(found)))
    assert FIRST < len(found) <= 110


def test_an_optimizer_made_for_each_step_has_one_turn_in_a_hundred():
    schedule = Schedule(100)
    found = []
    for number in range(2000):
        schedule.made(number)
        found += [number] if schedule.is_due() else []
        schedule.stepped(number)
    assert [number for number in found if number > 110] == list(range(200, 2000, 100))


def test_an_optimizer_that_steps_within_another_is_not_awaited():
    schedule = Schedule(0)
    schedule.made(0)
    schedule.made(1)
    schedule.steps_with(1)
    assert captured(schedule, 100) == list(range(FIRST))


def test_an_optimizer_that_steps_seldom_is_captured_four_times():
    schedule = Schedule(0)
    schedule.made(0)
    schedule.made(1)
    turns = [int(number % 50 == 49) for number in range(2000)]
    found = captured(schedule, 2000, turns.__getitem__)
    assert max(found) < 50 * (FIRST + 1)
    assert len(found) <= 40 * (FIRST + 1)


def test_an_optimizer_that_is_made_late_is_captured():
    schedule = Schedule(0)
    assert captured(schedule, 1000) == [0, 1, 2, 3]
    schedule.made(1)
    assert captured(schedule, 10, lambda number: int(number > 1)) == [0, 1, 2, 3, 4, 5]


def test_an_optimizer_that_begins_late_is_captured_from_its_second_step():
    schedule = Schedule(0)
    schedule.made(0)
    schedule.made(1)
    captured(schedule, 1000)
    assert captured(schedule, 10, lambda number: 1) == [1, 2, 3]


def test_what_is_asked_for_is_granted_ever_more_rarely():
    schedule = Schedule(0)
    captured(schedule, 10)
    schedule.request()
    assert schedule.is_due()
    granted = 0
    for _ in range(5000):
        schedule.request()
        granted += schedule.is_due()
        schedule.stepped(0)
    assert 5 <= granted <= 20


@pytest.mark.nightly
def test_the_first_steps_of_generator_and_critic(capture_steps):
    made = capture_steps(gradient_penalty, tensor_every=0)
    steppers = {
        step.index: step.optimizer and event.optimizer
        for step in made.recording.steps
        for event in made.recording.events
        if event.step == step.index and event.kind == "step"
    }
    turns = [steppers[step] for step in made.steps]
    assert turns.count(0) == 20 or turns.count(1) == 20
    assert min(turns.count(0), turns.count(1)) == FIRST


@pytest.mark.parametrize("tensor_every", some_on_push([0, 5], 2))
def test_the_steps_of_a_loop(tensor_every, capture_steps):
    made = capture_steps(lambda: train(12), tensor_every=tensor_every)
    assert made.steps == [0, 1, 2, 3, *([5, 10] if tensor_every else [])]


def test_a_gradient_that_dies_is_captured(capture_steps):
    def loop():
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(20, model, optimizer)
        with torch.no_grad():
            model[0].bias.fill_(-1e6)
        train(3, model, optimizer)

    made = capture_steps(loop, tensor_every=0)
    assert made.steps == [0, 1, 2, 3, 21]


@pytest.mark.nightly
def test_a_gradient_that_is_not_finite_any_more_is_captured(capture_steps):
    def loop():
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(20, model, optimizer)
        with torch.no_grad():
            model[0].bias.fill_(float("nan"))
        train(3, model, optimizer)

    # The step itself is captured from its backward on, and the next one as a whole.
    assert capture_steps(loop, tensor_every=0).steps == [0, 1, 2, 3, 20, 21]


@pytest.mark.nightly
def test_a_closure_that_is_called_several_times_is_captured_once(capture_steps):
    def loop():
        model = nn.Linear(8, 4)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        x, y = features()

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)

    assert capture_steps(loop, tensor_every=0).steps == [0, 1, 2, 3]


def test_steps_by_number(tmp_path):
    path = tmp_path / "run.gradscope"
    schedule = Schedule(0, [6])
    watch = TrainingWatch(path, "gradscope run", make_captures=script_captures_by(schedule))
    watch.start()
    try:
        train(8)
    finally:
        watch.stop()
    assert [one.step for one in load_recording(path).captured_steps] == [0, 1, 2, 3, 6]
