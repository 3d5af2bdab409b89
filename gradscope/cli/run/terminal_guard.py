"""Puts a terminal right when the process that drew on it dies, whatever it dies of."""

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
"""Reads lines until there are no more. It is a grandchild: a script may wait for its children."""


class TerminalGuard:
    """A process of its own that writes to the terminal when this one has ended without a word.

    `os._exit`, a fault and `kill -9` leave a process no time to do it itself.

    Args:
        terminal: What it writes to.
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
                # Out of reach of Ctrl-C, which it would die of first.
                start_new_session=True,
            )
        except OSError:  # there is no shell: the process has to be killed gently
            self._close()
        finally:
            os.close(reading)
        # A copy of the process must not keep the pipe open for longer than the process lives.
        os.register_at_fork(after_in_child=self._close)

    def expect(self, text: str) -> None:
        """Have a text written at an end of the process from now on."""
        # Octal escapes are what every printf knows.
        self._tell("".join(f"\\{byte:03o}" for byte in text.encode()))

    def release(self) -> None:
        """Have nothing written: all has been done."""
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
