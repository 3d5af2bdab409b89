"""When a display reads, judges and draws, and what becomes of it when something breaks."""

import errno
import io
import os
import threading

import pytest
from rich.console import Console

from gradscope.cli.run import live as run_live
from gradscope.cli.run.live import LiveDisplay
from gradscope.export.live_metrics import Pace
from gradscope.recording.store import save_recording
from gradscope.rules.settings import Settings
from tests.report.run.conftest import plain


class Panel:
    room = os.terminal_size((60, 12))

    def __init__(self):
        self.drawn, self.closed, self.error = [], 0, None

    def show(self, lines):
        if self.error is not None:
            raise self.error
        self.drawn.append(lines)

    def close(self):
        self.closed += 1


@pytest.fixture
def display(tmp_path):
    save_recording(plain(steps=3), tmp_path / "run.gradscope")
    panel = Panel()
    console = Console(file=io.StringIO(), markup=False, highlight=False, emoji=False)
    made = LiveDisplay(panel, console, "train.py", Settings())
    made.panel, made._frames = panel, Pace(0.0, share=1e9)
    made.begin(tmp_path / "run.gradscope")
    return made


def test_every_update_draws_where_it_is_time(display):
    assert len(display.panel.drawn) == 1
    for _ in range(3):
        display.update()
    assert len(display.panel.drawn) == 4
    assert not any("findings" in line for line in display.panel.drawn[-1])


def test_end_of_the_recording_is_judged_and_drawn_at_once(display, monkeypatch):
    monkeypatch.setattr(display._frames, "_between", 1e9)
    display.update()
    display.update()
    assert len(display.panel.drawn) == 2
    display.update(is_last=True)
    assert len(display.panel.drawn) == 3
    assert display.panel.drawn[-1][-1].startswith("no findings  after 3 steps")


def test_run_that_takes_long_to_judge_is_judged_once(display, monkeypatch):
    monkeypatch.setattr(run_live, "_PATIENCE", 0.0)
    monkeypatch.setattr(display._judgements, "_took", -1.0)
    judged = []
    judge = run_live.judge
    monkeypatch.setattr(run_live, "judge", lambda *args: judged.append(1) or judge(*args))
    display.update(is_last=True)
    display.update(is_last=True)
    assert len(judged) == 1
    assert "next at the end" in display.panel.drawn[-1][-1]


@pytest.mark.parametrize(
    "error, told",
    [
        (ValueError("odd"), "note: the live display stopped: ValueError: odd\n"),
        (OSError(errno.EIO, "gone"), ""),
    ],
)
def test_error_ends_it_and_is_told_once(display, capsys, error, told):
    display.panel.error = error
    for _ in range(3):
        display.update()
    assert capsys.readouterr().err == told
    assert display.panel.closed == 1


def test_ctrl_c_is_the_script_s(display):
    display.panel.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        display.update()
    display.panel.error = None
    display.update()
    assert len(display.panel.drawn) == 2


def test_step_of_another_thread_does_not_wait(display):
    entered, leave = threading.Event(), threading.Event()
    show = display.panel.show

    def slowly(lines):
        entered.set()
        leave.wait(10)
        show(lines)

    display.panel.show = slowly
    thread = threading.Thread(target=display.update)
    thread.start()
    entered.wait(10)
    display.update()  # returns at once
    assert len(display.panel.drawn) == 1
    leave.set()
    thread.join()
    assert len(display.panel.drawn) == 2


def test_nothing_is_drawn_after_the_end(display):
    display.close()
    display.close()
    display.update(is_last=True)
    assert (len(display.panel.drawn), display.panel.closed) == (1, 1)
