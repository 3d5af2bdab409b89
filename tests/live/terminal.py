"""A terminal to run things in: what is written to it ends up on a screen that tests can read."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from contextlib import suppress

import pyte


class Screen(pyte.HistoryScreen):
    """What a terminal shows, and what has scrolled out of it."""

    def index(self):
        """Like a terminal, keep what leaves a scrolling region at the top of the screen."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.history.top.append(self.buffer[0])
        pyte.Screen.index(self)

    @property
    def rows(self):
        return [line.rstrip() for line in self.display]

    @property
    def scrolled(self):
        columns = range(self.columns)
        return ["".join(line[x].data for x in columns).rstrip() for line in self.history.top]

    @property
    def text(self):
        """All that a user can scroll back to, without the empty lines."""
        return [line for line in (*self.scrolled, *self.rows) if line]


class Terminal:
    """A screen, and the file that programs write to: `name`, or open as `other`."""

    def __init__(self, columns=80, lines=24):
        self.main, self.other = pty.openpty()
        self.name = os.ttyname(self.other)
        self.screen = Screen(columns, lines, history=100_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.has_sent = False
        """Whether a key was pressed."""
        self.resize(columns, lines)

    def resize(self, columns, lines):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if (columns, lines) != (self.screen.columns, self.screen.lines):
            self.screen.resize(lines, columns)
            self.screen.set_margins()

    def send(self, text):
        self.has_sent = True
        os.write(self.main, text.encode())

    def write(self, text):
        """Write as a program does."""
        os.write(self.other, text.encode())
        self.read()

    def read(self, seconds=0.0):
        """Take in all that has been written; wait for so long where there is nothing yet."""
        while select.select([self.main], [], [], seconds)[0]:
            with suppress(OSError):  # nobody has it open any more
                piece = os.read(self.main, 65536)
                self.written += piece
                self._stream.feed(piece)
                seconds = 0.0
                continue
            return

    def wait(self, is_so, seconds=20):
        """Read on until something is so."""
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, "\n".join(self.screen.rows)
            self.read(0.05)

    def shows(self, text):
        return any(text in row for row in self.screen.rows)

    @property
    def is_whole(self):
        """Whether it scrolls as a whole, as it does of itself."""
        margins = self.screen.margins
        return margins is None or tuple(margins) == (0, self.screen.lines - 1)

    @property
    def set_aside(self):
        """How many rows at the bottom do not scroll with the others."""
        return 0 if self.is_whole else self.screen.lines - 1 - self.screen.margins.bottom

    def close(self):
        os.close(self.main)
        os.close(self.other)
