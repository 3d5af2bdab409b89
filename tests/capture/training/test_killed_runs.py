"""A training that is killed at any moment leaves a recording of what it had finished."""

import os
import random
import signal
import sqlite3
import struct
import time
from contextlib import closing

import pytest
import torch
from torch import nn

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.report import Report
from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import judge
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by

OPEN_STEPS, OPEN_SECONDS = 100, 2.0
"""Largest part that may be lost: so many last steps, or those of so many last seconds."""

FEW, MANY = 4, 100
LONGEST = 3.0
"""Seconds within which the training is killed: by then it has made some thousand steps."""

ROOM = Room(limit=1_000_000, recent=100, chunks=10, around=300, captured=8)


def train_for_ever(path, out):
    """Record a training, and write the time after every step to a pipe."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = TrainingWatch(
        path,
        "gradscope run train.py",
        budget=0.05,
        room=ROOM,
        make_captures=script_captures_by(Schedule(None)),
    )
    watch.start()
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
        os.write(out, struct.pack("d", time.time()))


def killed_after(seconds, path):
    """Return the times of the steps that a training finished before it was killed."""
    inward, outward = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(inward)
            train_for_ever(path, outward)
        finally:
            os._exit(1)
    os.close(outward)
    with os.fdopen(inward, "rb") as stream:
        told = stream.read(8)  # the first step is made
        until = time.time() + seconds
        os.set_blocking(inward, False)
        while time.time() < until:
            told += stream.read() or b""
            time.sleep(min(0.01, max(0.0, until - time.time())))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.set_blocking(inward, True)
        told += stream.read()
    return [moment for (moment,) in struct.iter_unpack("d", told[: len(told) // 8 * 8])]


@pytest.mark.nightly
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_only_the_open_steps_are_lost(count, tmp_path):
    draw = random.Random(count)
    for turn in range(count):
        path = tmp_path / f"{turn}.gradscope"
        finished = killed_after(draw.uniform(0, LONGEST), path)
        killed = time.time()
        with closing(sqlite3.connect(path)) as base:
            assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        recording = load_recording(path)
        kept = KeptSteps(recording).total
        lost = finished[kept:]
        assert len(lost) <= OPEN_STEPS or killed - lost[0] < OPEN_SECONDS, (turn, len(lost))
        assert [step.index for step in recording.steps] == sorted(
            {step.index for step in recording.steps}
        )
        Report.from_recording(recording, judge(recording))
