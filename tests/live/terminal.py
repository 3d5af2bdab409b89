"""A terminal to run things in: what is written to it ends up on a screen that tests can read."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress

import pyte

ENVIRONMENT = {
    **{
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI")
    },
    "OMP_NUM_THREADS": "1",
    "TERM": "xterm-256color",
    "LC_ALL": "C.UTF-8",
}


class Screen(pyte.HistoryScreen):
    """What a terminal shows, with what has scrolled out of it."""

    def index(self):
        # Like a terminal, keep what leaves a scrolling region at the top of the screen.
        top, bottom = self.margins or pyte.screens.Margins(0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.history.top.append(self.buffer[0])
        pyte.Screen.index(self)

    @property
    def scrolled(self):
        return [
            "".join(line[x].data for x in range(self.columns)).rstrip() for line in self.history.top
        ]

    @property
    def rows(self):
        return [line.rstrip() for line in self.display]


class Terminal:
    """Runs a command with its stderr, and its stdout too if that is wanted, on a terminal."""

    def __init__(self, command, folder, *, columns=80, lines=24, stdout=None, **environment):
        self.main, other = pty.openpty()
        self.screen = Screen(columns, lines, history=100_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.frames = []
        """The rows after each piece that was read."""
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**ENVIRONMENT, **environment},
            stdin=other,
            stdout=other if stdout is None else stdout,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    def resize(self, columns, lines):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, seconds=0.05):
        """Take in what is written; return whether there was anything."""
        if not select.select([self.main], [], [], seconds)[0]:
            return False
        piece = b""
        with suppress(OSError):  # the other end is closed
            piece = os.read(self.main, 65536)
        self.written += piece
        self.stream.feed(piece)
        self.frames.append(self.screen.rows)
        return bool(piece)

    def until(self, is_there, seconds=30):
        """Read on until something is so."""
        end = time.monotonic() + seconds
        while not is_there(self.screen.rows):
            assert time.monotonic() < end, "\n".join(self.screen.rows)
            self.read()

    def finish(self, seconds=60):
        """Read on until the process has ended and all is written; return its exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "\n".join(self.screen.rows)
            self.read()
        while self.read(0.3):
            pass
        os.close(self.main)
        return self.process.returncode

    def send(self, text):
        os.write(self.main, text.encode())

    @property
    def is_whole(self):
        """Whether it scrolls as a whole again."""
        margins = self.screen.margins
        return margins is None or (margins.top, margins.bottom) == (0, self.screen.lines - 1)


def gradscope(*arguments):
    return [sys.executable, "-m", "gradscope", *map(str, arguments)]
