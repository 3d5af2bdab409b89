import subprocess
from contextlib import contextmanager

import pytest

from tests.launch.conftest import ENVIRONMENT, STAND_IN, TORCH, forked, gradscope, write

pytest.importorskip("pyte")

from tests.live.terminal import Terminal

__all__ = ["forked", "gradscope", "write"]

OF_TERMINALS = {
    **{
        name: value
        for name, value in ENVIRONMENT.items()
        if name not in ("LINES", "NO_COLOR", "FORCE_COLOR")
    },
    "TERM": "xterm-256color",
    "LC_ALL": "C.UTF-8",
    "PYTHONUTF8": "1",
}


@pytest.fixture
def terminal():
    """Makes a terminal of a size."""
    made = []

    def make(columns=80, lines=24):
        made.append(Terminal(columns, lines))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def live(forked, tmp_path, write, terminal):
    """Runs a script with `--live` on a terminal, its stdout too unless that leads to a file.

    It trains as the stand-in for the watch understands it.
    """

    @contextmanager
    def run(text, *options, columns=80, lines=24, stdout=None, **environment):
        write("torch/__init__.py", TORCH)
        write("train.py", text)
        screen = terminal(columns, lines)
        forked.start(
            tmp_path,
            ["run", "--live", *options, "train.py"],
            {**OF_TERMINALS, **environment},
            streams=(screen.name, stdout or screen.name, screen.name),
            first=STAND_IN,
        )
        try:
            yield screen
        finally:
            if not screen.has_sent:  # a script may still wait for a line
                screen.send("\n")
            screen.wait(forked.has_ended)
            screen.code = forked.ended()
        screen.wait(lambda: screen.is_whole, 5)  # by the guard, where the process was killed
        screen.read(0.1)

    return run


@pytest.fixture
def start_on(terminal, tmp_path):
    """Starts a real process on a terminal, in the test's folder."""

    def start(command, columns=80, lines=24, stdout=None, **environment):
        screen = terminal(columns, lines)
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**OF_TERMINALS, **environment},
            stdin=screen.other,
            stdout=screen.other if stdout is None else stdout,
            stderr=screen.other,
            start_new_session=True,
        )
        return screen, process

    return start
