"""The display of `gradscope run --live` at the bottom of a terminal, and when it is drawn."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self, TextIO

from rich.console import Console
from rich.text import Text

from gradscope.analysis.live_run import KINDS, LiveRun
from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import show_note
from gradscope.errors import GradscopeError
from gradscope.export.live_metrics import Pace
from gradscope.launch.execution import preserved_random_state
from gradscope.recording.growing import GrowingRecording
from gradscope.recording.store import load_recording
from gradscope.report.live import Judged, frame
from gradscope.report.page import Page
from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings

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


_BETWEEN_FRAMES, _BETWEEN_JUDGEMENTS = 0.25, 2.0
"""Smallest number of seconds between two frames, and between two judgements."""
_BETWEEN_LOOKS = 0.05
"""Seconds between two checks whether a frame is due, for a recording of another process."""
_PATIENCE = 5.0
"""Seconds: a run that takes longer to judge is judged again only at its end."""
_HELPLESS = ("dumb", "unknown")
"""Values of TERM of terminals that cannot move the cursor."""


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


class LiveDisplay:
    """The live display of a run.

    It reads the recording only, and is drawn between two steps of the script. An error of its own
    ends the display, and nothing else.

    Args:
        panel: Panel on the terminal.
        console: Console with the terminal's characters and colours.
        name: Name of the program.
        settings: Settings of the rules.
        planned: Largest number of steps that are recorded; None without a limit.
    """

    def __init__(
        self,
        panel: BottomPanel,
        console: Console,
        name: str,
        settings: Settings,
        planned: int | None = None,
    ) -> None:
        self._panel, self._console = panel, console
        self._settings, self._planned = settings, planned
        self._process, self._turn = os.getpid(), threading.Lock()
        self._frames, self._judgements = Pace(_BETWEEN_FRAMES), Pace(_BETWEEN_JUDGEMENTS)
        self._path: Path | None = None
        self._recording: GrowingRecording | None = None
        self._run = LiveRun(name)
        self._judged: Judged | None = None
        self._is_on = True

    @classmethod
    def on(
        cls,
        stream: TextIO,
        color: ColorChoice,
        name: str,
        settings: Settings,
        planned: int | None = None,
    ) -> Self | None:
        """Return a display on the terminal of a stream; None if the stream is no terminal."""
        if os.name != "posix" or os.environ.get("TERM") in _HELPLESS or not stream.isatty():
            show_note("--live needs a terminal on stderr: nothing is shown until the end")
            return None
        # A descriptor of its own: the script may close or replace the stream.
        terminal = os.dup(stream.fileno())
        own = os.fdopen(terminal, "w", encoding=stream.encoding)
        console = make_console(own, color)
        return cls(BottomPanel(terminal, stream.encoding), console, name, settings, planned)

    def begin(self, path: Path) -> None:
        """Show that a recording begins."""
        self._path, self._recording = path, GrowingRecording(path, KINDS)
        self._attempt(self._draw)

    def update(self, *, is_last: bool = False) -> None:
        """Show new steps, if a frame is due or the last step is made."""
        if not self._is_on or not (self._frames.is_due or is_last) or os.getpid() != self._process:
            return
        # A step of another thread must not wait.
        if self._turn.acquire(blocking=False):
            try:
                self._attempt(lambda: self._refresh(is_last=is_last))
            finally:
                self._turn.release()

    @property
    def is_over(self) -> bool:
        """Whether the recording has ended, or the display has."""
        return self._run.is_over or not self._is_on

    def close(self) -> None:
        """Remove the panel from the terminal. Further calls do nothing."""
        if self._is_on and os.getpid() == self._process:
            self._is_on = False
            with suppress(OSError):
                self._panel.close()
            with suppress(OSError):
                self._console.file.close()

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            with preserved_random_state():
                act()
        except Exception as error:  # noqa: BLE001 - it must not end the script
            self.close()
            # EIO: the terminal is gone, and a note would fail too.
            if not (isinstance(error, OSError) and error.errno == errno.EIO):
                with suppress(OSError, ValueError):
                    show_note(f"the live display stopped: {type(error).__name__}: {error}")

    def _refresh(self, *, is_last: bool) -> None:
        """Read new steps, judge the run if it is due, and draw."""
        if self._path is None or self._recording is None:
            return
        if not self._run.steps:
            self._judgements.postpone()  # the first step alone says little
        is_patient = self._judgements.last_took < _PATIENCE
        if is_patient and (self._judgements.is_due or is_last):
            self._judge(self._path)
        with self._frames:
            self._run.add(self._recording.read())
            self._draw()

    def _judge(self, path: Path) -> None:
        with self._judgements:
            recording = load_recording(path)
            found = judge(recording, self._settings).findings
        self._judged = Judged(
            findings=found,
            steps=len(recording.steps),
            is_final=self._judgements.last_took >= _PATIENCE,
        )

    def _draw(self) -> None:
        room = self._panel.room
        page = replace(Page.of(self._console, self._run.root), width=room.columns)
        lines = frame(self._run, self._judged, page, room.lines, planned=self._planned)
        self._panel.show([self._spelled(line, room.columns) for line in lines])

    def _spelled(self, line: Text, width: int) -> str:
        """Return a line with the terminal's escape sequences."""
        with self._console.capture() as capture:
            # A line that wraps would push others out of the panel.
            self._console.print(line, end="", width=width, no_wrap=True)
        return capture.get()


def follow(path: Path, color: ColorChoice, settings: Settings) -> None:
    """Show a recording that another process writes, until it ends or the user presses Ctrl-C.

    Raises:
        GradscopeError: It cannot be read, or there is no terminal.
    """
    name = load_recording(path, is_outline=True).target.name
    if not sys.stderr.isatty():
        raise GradscopeError("--follow needs a terminal on stderr", help="leave --follow out")
    display = LiveDisplay.on(sys.stderr, color, name, settings)
    if display is None:
        return
    display.begin(path)
    try:
        while not display.is_over:
            display.update()
            time.sleep(_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        pass  # the report of what there is follows
    finally:
        display.close()
