"""Recordings that an earlier version wrote still open, and are judged as they were."""

import lzma
from pathlib import Path

import pytest

from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.session.report import Report

DATA = Path(__file__).with_name("data")


@pytest.fixture
def earlier(tmp_path):
    """Return a function that unpacks a recording and reads it."""

    def read(name):
        path = tmp_path / f"{name}.gradscope"
        path.write_bytes(lzma.decompress((DATA / f"{name}.gradscope.xz").read_bytes()))
        return load_recording(path)

    return read


def test_an_inspection_opens(earlier):
    recording = earlier("inspected")
    report = Report.from_recording(recording, judge(recording))
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == ("GS201", "warning")
    assert finding.location.line == 14
    assert [row.reach for row in report.parameters] == ["none", "none", "gradient", "gradient"]


def test_a_run_opens(earlier):
    recording = earlier("run")
    report = Report.from_recording(recording, judge(recording))
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.location.line) == ("GS301", "error", 10)
    assert len(report.training_run.steps) == 12
    assert [step.step for step in recording.captured_steps] == [0, 1, 2, 3]
    assert [event.kind for event in recording.events].count("backward") == 12
