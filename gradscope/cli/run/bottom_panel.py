"""Lines at the bottom of a terminal, which is restored if the process that draws them dies."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress

_SCRIPT = """
exec 3<&0
(
  while IFS= read -r line
  do
    [ "$line" = done ] && exit
    last=$line
  done
  printf "$last"
) <&3 &
"""
"""Reads lines to the end. It runs as a grandchild: a script may wait for its children."""


class TerminalGuard:
    """A process of its own that writes to the terminal when this one ends abruptly.

    `os._exit`, a fault and `kill -9` leave a process no time to do it itself.

    Args:
        terminal: File descriptor of the terminal.
    """

    def __init__(self, terminal: int) -> None:
        reading, self._pipe = os.pipe()
        self._is_open = True
        try:
            subprocess.run(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=reading,
                stdout=terminal,
                stderr=subprocess.DEVNULL,
                check=False,
                # Ctrl-C must not end it before this process.
                start_new_session=True,
            )
        except OSError:  # without a shell, a killed process leaves the terminal as it is
            self._close()
        finally:
            os.close(reading)
        # A copy of the process must not keep the pipe open for longer than the process lives.
        os.register_at_fork(after_in_child=self._close)

    def expect(self, text: str) -> None:
        """Set the text that is written when the process ends."""
        # Octal escapes are what every printf knows.
        self._tell("".join(f"\\{byte:03o}" for byte in text.encode()))

    def release(self) -> None:
        """Write nothing at the end of the process."""
        self._tell("done")
        self._close()

    def _tell(self, line: str) -> None:
        if self._is_open:
            with suppress(OSError):
                os.write(self._pipe, f"{line}\n".encode())

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._pipe)


_SAVE, _LOAD = "\x1b7", "\x1b8"
"""Commands that save and restore the cursor and the colours."""

_PLAIN = "\x1b[0m"

_SCROLL_ALL = "\x1b[r"

_ERASE_LINE, _ERASE_BELOW = "\x1b[2K", "\x1b[J"

_INDEX = "\x1bD"
"""Moves one row down in the same column; in the last row, the terminal scrolls."""

_LEAST_ROWS = 6
"""Number of rows below which a terminal gets no panel."""


class BottomPanel:
    """The last rows of a terminal.

    Args:
        terminal: File descriptor of the terminal.
        encoding: Encoding of the text.
    """

    def __init__(self, terminal: int, encoding: str) -> None:
        self._terminal, self._encoding = terminal, encoding
        self._guard = TerminalGuard(terminal)
        self._size: os.terminal_size | None = None
        """Size of the terminal when rows were last reserved; None before."""
        self._height = 0

    @property
    def room(self) -> os.terminal_size:
        """Columns and lines that a panel may have now; no lines if the terminal is too small."""
        columns, rows = os.get_terminal_size(self._terminal)
        # In the last column, terminals differ in when they begin the next line.
        return os.terminal_size((columns - 1, rows // 2 if rows >= _LEAST_ROWS else 0))

    def show(self, lines: Sequence[str]) -> None:
        """Draw the lines in place of those before; the panel grows and does not shrink.

        Raises:
            OSError: The terminal is gone.
        """
        size = os.get_terminal_size(self._terminal)
        if self._size is None and not lines:
            return
        text = ""
        if size != self._size or len(lines) > self._height:
            text = self._set_aside(size, max(len(lines), min(self._height, self.room.lines)))
        top = size.lines - self._height
        text += f"{_SAVE}{_PLAIN}\x1b[1;{top}r"  # each time, as a program in between may undo it
        for row in range(self._height):
            line = lines[row] if row < len(lines) else ""
            text += f"\x1b[{top + row + 1};1H{_ERASE_LINE}{line}{_PLAIN}"
        self._write(text + _LOAD)

    def close(self) -> None:
        """Erase and release the rows; the cursor does not move."""
        if self._size is not None:
            self._write(self._undoing(self._size))
            self._size = None
        self._guard.release()

    def _set_aside(self, size: os.terminal_size, height: int) -> str:
        """Return the text that reserves a number of lines below the cursor."""
        if self._size is None:
            text = ""
        elif self._size == size:
            text = self._undoing(size)
        else:
            # After a resize, the old lines are somewhere below the cursor.
            text = f"{_SAVE}{_SCROLL_ALL}{_LOAD}{_SAVE}{_PLAIN}{_ERASE_BELOW}{_LOAD}"
        self._size, self._height = size, height
        self._guard.expect(self._undoing(size))
        # Scrolling makes room below the cursor, which then returns to its row.
        return text + (f"{_INDEX * height}\x1b[{height}A" if height else "")

    def _undoing(self, size: os.terminal_size) -> str:
        first = size.lines - self._height + 1
        below = f"\x1b[{first};1H{_ERASE_BELOW}" if self._height else ""
        return f"{_SAVE}{_PLAIN}{_SCROLL_ALL}{below}{_LOAD}"

    def _write(self, text: str) -> None:
        # A single write cannot be interleaved with other output.
        rest = text.encode(self._encoding, "replace")
        # A terminal may take only a part of what is written.
        while rest:
            rest = rest[os.write(self._terminal, rest) :]
