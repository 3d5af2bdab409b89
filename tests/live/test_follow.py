"""`gradscope report --follow`: the view of a recording that another process writes."""

import sys

import pytest

from gradscope.cli.report import _follow
from gradscope.errors import GradscopeError
from gradscope.recording.meta import header_of
from gradscope.recording.run_recorder import RunRecorder
from gradscope.rules.settings import DEFAULT_SETTINGS
from tests.recording.test_growing import steps_of
from tests.recording.test_thinning import recorder_at
from tests.rules.accumulation.runs import Run


@pytest.mark.nightly
def test_the_view_grows_and_the_report_comes_at_the_end(start_on, tmp_path):
    run = Run()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for _ in range(60):
        run.zero(optimizer, line=10)
        run.backward(weights, line=11)
        run.step(optimizer, line=12)
    recording = run.recording()
    path = tmp_path / "train.gradscope"
    recorder = RunRecorder(path, header_of(recording))
    first, *others = list(steps_of(recording))
    recorder.add(first)
    screen, process = start_on(
        [sys.executable, "-m", "gradscope", "report", "--follow", str(path)], columns=100
    )
    screen.wait(lambda: screen.shows("1 step"), 60)
    assert process.poll() is None
    for step in others:
        recorder.add(step)
    screen.wait(lambda: screen.shows("60 steps"), 60)
    recorder.close()
    screen.wait(lambda: process.poll() is not None, 60)
    screen.read(0.2)
    assert process.returncode == 0
    assert screen.shows("60 steps in"), screen.screen.rows


def test_without_a_terminal_it_is_refused_in_one_line(tmp_path):
    path = tmp_path / "train.gradscope"
    recorder_at(path, None).close()
    with pytest.raises(GradscopeError, match="--follow needs a terminal"):
        _follow([path], "auto", DEFAULT_SETTINGS)


def test_several_recordings_are_refused(tmp_path):
    with pytest.raises(GradscopeError, match="--follow takes one recording"):
        _follow([tmp_path / "a.gradscope", tmp_path / "b.gradscope"], "auto", DEFAULT_SETTINGS)


def test_a_missing_recording_is_named(tmp_path):
    with pytest.raises(GradscopeError, match="No such file"):
        _follow([tmp_path / "a.gradscope"], "auto", DEFAULT_SETTINGS)
