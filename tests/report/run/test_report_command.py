"""`gradscope report` of a run that was saved."""

import json
import subprocess
import sys

import pytest

from gradscope.recording.store import save_recording
from tests.report.run.conftest import accumulation, cut_short, shown

FORMATS = ("full", "concise", "json", "jsonl", "markdown")


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "train.gradscope"
    save_recording(cut_short(accumulation()), path)
    return path


def test_every_format_of_a_saved_run_without_torch(saved):
    script = (
        "import sys\n"
        "from gradscope.cli.app import app\n"
        f"for output_format in {FORMATS}:\n"
        f"    app(['report', {str(saved)!r}, '--output-format', output_format,\n"
        "         '--ignore', 'ALL'], standalone_mode=False)\n"
        "    assert 'torch' not in sys.modules, output_format\n"
        "    print('=' * 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    full, concise, as_json, jsonl, markdown, _ = done.stdout.split("=========\n")
    recording = cut_short(accumulation())
    assert "run incomplete" in full
    assert "Curves  12 steps from left to right" in full
    assert concise.endswith("run incomplete.\n")
    assert json.loads(as_json)["timeline"] == json.loads(shown(recording, "json"))["timeline"]
    assert any(json.loads(line)["kind"] == "training_run" for line in jsonl.splitlines())
    assert "### Curves" in markdown


def test_a_run_that_was_not_looked_at_has_no_graph_to_show(saved, gradscope_in):
    done = gradscope_in(saved.parent, "graph", saved.name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a training run without a captured step" in done.stderr
