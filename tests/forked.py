"""Runs the command line in processes that need not import everything again."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

LIMIT: Final = 120
"""Seconds that a command may take."""


def command(
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    streams: Sequence[Path | str],
    first: Path | None = None,
) -> dict[str, object]:
    """Return a command whose three streams lead to files."""
    return {
        "folder": str(folder),
        "arguments": list(arguments),
        "environment": dict(environment),
        "streams": list(zip(map(str, streams), "rww", strict=True)),
        "first": str(first or ""),
    }


class ForkedCommands:
    """A process that has imported modules, and forks for each command line of gradscope.

    A forked command has its own streams, folder, environment, arguments and exit code, and calls
    what is registered for its end. What it cannot show: which modules a command imports, what an
    option of the interpreter does, what holds for the variables that only a starting interpreter
    reads, and what happens while the interpreter takes its modules apart.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._modules, self._environment = modules, environment
        self.process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forking.py"), *self._modules],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        folder: Path,
        arguments: Sequence[object],
        environment: Mapping[str, str],
        *,
        stdin: str = "",
        first: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `gradscope ARGUMENTS` in a folder; `first` is a file of Python to run before it."""
        words = [str(argument) for argument in arguments]
        with TemporaryDirectory(prefix="streams-") as position:
            streams = [Path(position) / name for name in ("in", "out", "err")]
            streams[0].write_text(stdin)
            self.start(folder, words, environment, streams=streams, first=first)
            code = self.ended()
            out, err = (stream.read_text() for stream in streams[1:])
        return subprocess.CompletedProcess(words, code, out, err)

    def start(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        streams: Sequence[Path | str],
        first: Path | None = None,
    ) -> None:
        """Start a command whose three streams lead to files; `ended` waits for it."""
        self.start_all([command(folder, arguments, environment, streams=streams, first=first)])

    def start_all(self, commands: Sequence[dict[str, object]]) -> None:
        """Start commands at once; `all_ended` waits for them."""
        print(json.dumps(commands), file=self.process.stdin, flush=True)

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether the command that was started has ended, or ends within so many seconds."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ended(self) -> int:
        """Wait for the command that was started; return its exit code."""
        return self.all_ended()[0]

    def all_ended(self, limit: float = LIMIT) -> list[int]:
        """Wait for the commands that were started; return their exit codes.

        After so many seconds, they are killed.
        """
        if not self.has_ended(limit):
            # A new process: the next command must not get the late answer to this one.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.close()
            self.process = self._started()
            raise AssertionError(f"a command did not end within {limit} s")
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Let the process end."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LIMIT)
