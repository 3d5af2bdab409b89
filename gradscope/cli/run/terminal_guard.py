"""Restores a terminal when the process that drew on it dies."""

import os
import subprocess
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
