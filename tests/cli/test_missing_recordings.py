"""A recording that does not exist is answered by the one that was meant, or how to write one."""

import os
from pathlib import Path

import pytest

from gradscope.cli.rank_recordings import recording_paths
from gradscope.errors import GradscopeError


def help_for(name):
    with pytest.raises(GradscopeError, match="No such file") as raised:
        list(recording_paths([Path(name)]))
    return raised.value.help


@pytest.fixture(autouse=True)
def _recordings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["train.gradscope", "older.gradscope"]):
        Path(name).write_bytes(b"x")
        os.utime(name, (1_000_000 - age, 1_000_000 - age))


@pytest.mark.parametrize("slip", ["train", "train.gradscop", "trian.gradscope"])
def test_slip_is_answered_by_the_recording_that_was_meant(slip):
    assert help_for(slip) == "did you mean `train.gradscope`?"


def test_deleted_recording_is_answered_by_the_newest_one():
    assert help_for("experiment_7.gradscope") == "the newest recording there is `train.gradscope`"


def test_without_recordings_the_command_that_writes_one_is_named(tmp_path):
    for path in tmp_path.glob("*.gradscope"):
        path.unlink()
    assert help_for("net.gradscope") == (
        "gradscope run --save net.gradscope net.py writes a recording"
    )
