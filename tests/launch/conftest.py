import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.forked import ForkedCommands

STAND_IN = Path(__file__).with_name("stand_in.py")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "COLUMNS")},
    "OMP_NUM_THREADS": "1",
    "_TYPER_FORCE_DISABLE_TERMINAL": "1",
}


@pytest.fixture
def start(tmp_path):
    """Runs Python in the test's folder, and returns what became of it."""

    def run(*arguments, stdin="", folder=tmp_path, **environment):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**ENVIRONMENT, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def forked():
    # All that a run imports and that does without torch, of which a script has its own.
    modules = (
        "gradscope.check.baseline",
        "gradscope.cli.app",
        "gradscope.cli.run.judging",
        "gradscope.cli.run.launching",
        "gradscope.cli.shell.plain_parser",
        "gradscope.cli.run.recorders",
        "gradscope.cli.run.report",
        "gradscope.config.configuration",
        "gradscope.recording.store",
        "gradscope.report.formats.text",
        "gradscope.report.json.report",
        "gradscope.report.documents.run",
    )
    commands = ForkedCommands(modules, ENVIRONMENT)
    yield commands
    commands.close()


@pytest.fixture
def gradscope(forked, tmp_path):
    """Runs gradscope's command line in the test's folder, and returns what became of it.

    Unless a stand-in is not wanted, the script imports a torch of the test's own, and trains by
    telling so.
    """

    def run(*arguments, stdin="", stand_in=True, **environment):
        return forked.run(
            tmp_path,
            arguments,
            {**ENVIRONMENT, **environment},
            stdin=stdin,
            first=STAND_IN if stand_in else None,
        )

    return run


@pytest.fixture
def both(start, gradscope):
    """Runs something by python, and by gradscope: nothing may differ but what is asked for."""

    def run(*arguments, stdin="", **environment):
        plain = start(*arguments, stdin=stdin, **environment)
        watched = gradscope("run", "-q", *arguments, stdin=stdin, stand_in=False, **environment)
        return plain, watched

    return run


@pytest.fixture
def same(both):
    """Runs something by python and by gradscope, and returns what both did."""

    def run(*arguments, stdin="", **environment):
        plain, watched = both(*arguments, stdin=stdin, **environment)
        assert watched.stdout == plain.stdout
        assert watched.stderr == plain.stderr
        assert watched.returncode == plain.returncode
        return plain

    return run


@pytest.fixture
def write(tmp_path):
    """Writes a file of the test's folder."""

    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return put


TORCH = """
    def train(steps=1, zeroed=True):
        for _ in range(steps):
            if zeroed:
                watch.zero(4)
            watch.backward(5)
            watch.step(6)
"""
"""A torch to import that has no watch yet: a stand-in for the real one puts itself there."""


@pytest.fixture
def script(write):
    """Writes a script that trains as the stand-in for the watch understands it."""

    def put(text, name="train.py"):
        write("torch/__init__.py", TORCH)
        return write(name, text)

    return put
