"""The batches of steps that repeat others are named, whether every step is kept or not."""

import dataclasses
from array import array

import pytest

from gradscope.recording.evidence.batches import BatchIdentity
from gradscope.recording.store import load_recording
from gradscope.recording.thinning import readings
from tests.recording.test_thinning import ROOM, recorder_at, repeating, run_step

SPIKE = 130


def identity(step):
    return BatchIdentity(
        step=step,
        loader="train_loader",
        indices=(step, step + 1),
        shapes=(),
        lowest=None,
        highest=None,
        digest="",
    )


def described(path, room, sources):
    """Return the steps with a named batch of a run whose repeated steps have one spike."""
    recorder = recorder_at(path, room)
    recorder.batches.identities = lambda step, *, is_read: [identity(step)]
    for step in range(sources):
        recorder.add(run_step(step, 1.0 + step % 7, 1.0))
    for first in range(sources, sources + 200, 50):
        steps = repeating(first, 50)
        losses = array("d", steps.losses)
        if first <= SPIKE < first + 50:
            losses[SPIKE - first] = 1e6
        recorder.repeat(dataclasses.replace(steps, losses=losses.tobytes()))
    recorder.close()
    found = load_recording(path).evidence_of(BatchIdentity)
    assert all(one == identity(one.step) for one in found)
    return {one.step for one in found}


@pytest.mark.parametrize("room", [None, ROOM], ids=["all", "within 2 MB"])
def test_a_spike_in_a_repeated_step_names_its_batch(room, tmp_path):
    assert SPIKE in described(tmp_path / "run.gradscope", room, sources=20)


def test_a_step_that_others_repeat_is_remembered_the_longest(tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "_SOURCES", 5)
    whole = readings.ReadingsOfAll()
    for step in range(4):
        whole.of_step(step, run_step(step, 1.0, 1.0).events)
    assert whole.of_repeated(repeating(4, 3, source=0)) == []
    for step in range(7, 11):
        whole.of_step(step, run_step(step, 1.0, 1.0).events)
    many = repeating(11, 20, source=0)
    spiked = array("d", [1.0] * 19 + [1e9]).tobytes()
    (found,) = whole.of_repeated(dataclasses.replace(many, losses=spiked))
    assert found.step == 30
