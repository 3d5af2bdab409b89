"""The recording states why it ended."""

import threading

import pytest
import torch
from torch import nn

import gradscope
from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.store import load_recording


def train(steps):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


def ending_of(path):
    recording = load_recording(path)
    endings = recording.evidence_of(RunEnding)
    return recording, endings[0] if endings else None


def test_it_is_the_one_that_is_reported(tmp_path):
    watch = TrainingWatch(tmp_path / "run.gradscope", "run")
    watch.start()
    train(2)
    told = RunEnding(kind="exited", code=4)
    watch.stop(told)
    assert ending_of(tmp_path / "run.gradscope")[1] == told


def test_enough_steps_end_it(tmp_path):
    watch = TrainingWatch(tmp_path / "run.gradscope", "run", max_steps=2)
    watch.start()
    train(5)
    watch.stop(RunEnding(kind="returned", code=0))
    recording, ending = ending_of(tmp_path / "run.gradscope")
    assert ending == RunEnding(kind="limited", message="--max-steps 2")
    assert recording.finished


def test_what_cannot_be_followed_ends_it(tmp_path, capsys):
    """Another thread runs a backward while one is under way."""
    watch = TrainingWatch(tmp_path / "run.gradscope", "run")
    watch.start()
    try:
        train(3)

        def meanwhile(_):
            thread = threading.Thread(target=train, args=(1,))
            thread.start()
            thread.join()

        weight = torch.ones(2, requires_grad=True)
        weight.register_hook(meanwhile)
        weight.sum().backward()
        train(2)
    finally:
        watch.stop(RunEnding(kind="returned", code=0))
    recording, ending = ending_of(tmp_path / "run.gradscope")
    assert not recording.finished
    assert ending.kind == "lost"
    assert ending.message in capsys.readouterr().err
    assert len([step for step in recording.steps if step.optimizer]) >= 3


def test_a_block_that_an_exception_leaves_says_so(tmp_path):
    path = tmp_path / "watch.gradscope"
    with pytest.raises(ZeroDivisionError), gradscope.watch(save=path):
        train(1)
        raise ZeroDivisionError
    _, ending = ending_of(path)
    assert (ending.kind, ending.exception) == ("raised", "ZeroDivisionError")
    assert ending.file == __file__


def test_a_block_that_ends_says_nothing(tmp_path):
    path = tmp_path / "watch.gradscope"
    with gradscope.watch(save=path):
        train(1)
    assert ending_of(path)[1] is None
