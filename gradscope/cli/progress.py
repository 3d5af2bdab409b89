"""Shows on a terminal what takes time right now, in a line that is gone at the end."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from gradscope.cli.errors import QUIET, VERBOSITY, printable
from gradscope.progress import told_to

_ERASE = "\r\x1b[2K"
_HELPLESS = ("", "dumb", "unknown")
_COLUMNS = 80
"""Number of columns of a terminal that tells none."""


class ProgressLine:
    """Standard error, with a line that the next text erases.

    No thread draws it: a target may fork, and a forked process has no other threads. What a target
    prints comes first, and so the line stays away until the next stage.

    Args:
        stream: A terminal.
        prefix: Text before each stage.
    """

    def __init__(self, stream: TextIO, prefix: str = "") -> None:
        self._stream, self._prefix = stream, prefix
        self._is_shown = self._is_within_line = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text of the command or of the target."""
        self.erase()
        if text:
            self._is_within_line = not text.endswith("\n")
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def show(self, stage: str) -> None:
        """Show a stage in place of the one before."""
        if self._is_within_line or VERBOSITY.level <= QUIET:
            return
        text = printable(f"{self._prefix}{stage}").replace("\n", " ")
        # Text in the last column may wrap, and would not be erased whole.
        self._stream.write(f"{_ERASE}{_cut(text, self._columns - 1)}")
        self._stream.flush()
        self._is_shown = True

    def erase(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write(_ERASE)
            self._stream.flush()

    @property
    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            # The stream has been closed, or has no descriptor.
            return _COLUMNS


def _cut(text: str, width: int) -> str:
    """Return a text in at most so many columns; signs outside ASCII may take two."""
    while len(text) + sum(not sign.isascii() for sign in text) > max(width, 8):
        text = text[:-1]
    return text


@contextmanager
def progress_line(prefix: str = "", *, is_wanted: bool = True) -> Iterator[None]:
    """Show the stages of the block on standard error, if that is a terminal.

    Args:
        prefix: Text before each stage.
        is_wanted: Whether to show anything.
    """
    before = sys.stderr
    if not is_wanted or not _can_show(before):
        yield
        return
    line = ProgressLine(before, prefix)
    sys.stderr = line
    try:
        with told_to(line.show):
            yield
    finally:
        line.erase()
        # A target may have replaced the stream.
        if sys.stderr is line:
            sys.stderr = before


def erase_progress() -> None:
    """Remove the line before something else is written to the terminal."""
    if isinstance(sys.stderr, ProgressLine):
        sys.stderr.erase()


def _can_show(stream: TextIO | None) -> bool:
    is_helpless = os.environ.get("TERM", "") in _HELPLESS and os.name == "posix"
    if stream is None or is_helpless:
        return False
    try:
        return stream.isatty()
    except (AttributeError, OSError, ValueError):  # a script has replaced or closed it
        return False
