"""The line that says what takes time right now."""

import io
import sys
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest

from gradscope.cli.errors import QUIET, VERBOSITY, show_note
from gradscope.cli.progress import progress_line
from gradscope.progress import tell_stage
from tests.live.conftest import OF_TERMINALS

STAGES = ("importing torch", "loading model.py", "running the forward", "probing", "applying")
MODEL = """
import sys, torch
from torch import nn
print("made by print")
print("of standard error", file=sys.stderr)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
batch = (torch.randn(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""


@pytest.fixture
def screen(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return terminal(40, 8)


@contextmanager
def shown_on(screen, prefix=""):
    """Make a narrow terminal standard error, and show stages on it."""
    with (
        Path(screen.name).open("w", encoding="utf-8") as stream,
        redirect_stderr(stream),
        progress_line(prefix),
    ):
        yield


def test_a_stage_takes_the_place_of_the_one_before_and_is_gone_at_the_end(screen):
    with shown_on(screen, "a.py: "):
        tell_stage("importing torch")
        screen.wait(lambda: screen.screen.rows[0] == "a.py: importing torch")
        tell_stage("loading it")
        screen.wait(lambda: screen.screen.rows[0] == "a.py: loading it")
    tell_stage("nobody listens any more")
    screen.read(0.1)
    assert screen.screen.text == []


def test_other_texts_come_in_place_of_the_line(screen):
    with shown_on(screen):
        tell_stage("training: step 1 of 3")
        show_note("something of note")
        tell_stage("training: step 2 of 3")
        sys.stderr.write("half a line")
        tell_stage("training: step 3 of 3")
        sys.stderr.write(", and the rest\n")
        tell_stage("done")
    screen.read(0.1)
    assert screen.screen.text == ["note: something of note", "half a line, and the rest"]


@pytest.mark.parametrize("name", ["x" * 90, "\u7dda" * 45, "a\nb\x1b[31mc" * 9])
def test_a_long_or_hostile_name_takes_one_line(screen, name):
    with shown_on(screen):
        tell_stage(f"loading {name}")
        screen.wait(lambda: screen.screen.rows[0].startswith("loading"))
        assert len(screen.screen.text) == 1
        assert b"\x1b[31m" not in screen.written
    screen.read(0.1)
    assert screen.screen.text == []


def test_quiet_commands_helpless_terminals_and_files_get_no_line(screen, monkeypatch):
    monkeypatch.setattr(VERBOSITY, "level", QUIET)
    with shown_on(screen):
        tell_stage("unseen")
    monkeypatch.undo()
    monkeypatch.setenv("TERM", "dumb")
    with shown_on(screen):
        tell_stage("unseen")
    screen.read(0.1)
    assert screen.written == b""
    with redirect_stderr(io.StringIO()) as file, progress_line():
        tell_stage("unseen")
        assert sys.stderr is file
    assert file.getvalue() == ""


def test_an_inspection_shows_its_stages_and_leaves_its_report(server, terminal, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    screen = terminal()
    arguments = ["inspect", "model.py", "--output-format", "concise"]
    server.start(tmp_path, arguments, OF_TERMINALS, streams=[screen.name] * 3)
    screen.wait(server.has_ended, 100)
    server.ended()
    screen.read(0.1)
    written = screen.written.decode()
    positions = [written.find(stage) for stage in STAGES]
    assert -1 not in positions
    assert positions == sorted(positions)
    shown = screen.screen.text
    assert shown[:2] == ["made by print", "of standard error"]
    assert not [line for line in shown if line.startswith(STAGES)]
    assert shown[-1].startswith("next: gradscope inspect model.py")


TRAINING = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    criterion(model(batch[0]), batch[1]).backward()
    optimizer.step()
"""
)


@pytest.mark.nightly
def test_a_run_shows_that_it_is_judged_and_leaves_its_report(start_on, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    screen, process = start_on([sys.executable, "-m", "gradscope", "run", "train.py"], 80, 60)
    screen.wait(lambda: process.poll() is not None, seconds=120)
    screen.read(0.2)
    for stage in ("reading the recording", "applying the rules", "writing the report"):
        assert stage.encode() in screen.written
        assert not any(stage in line for line in screen.screen.text)


@pytest.mark.parametrize("stream", [None, object(), io.StringIO()])
def test_replaced_standard_error_gets_no_line(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line():
        tell_stage("reading the recording")
        assert sys.stderr is stream
