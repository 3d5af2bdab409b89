"""The server of `gradscope run --view`: a process of its own, which outlives a short run."""

import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.cli.errors import show_error, show_note, write_line
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.rules.settings import Settings
    from gradscope.view.server import ViewServer

_PATIENCE = 600.0
_NICE = 10
"""By how much the run goes before its view."""


def start_beside(
    path: Path, settings: "Settings", patience: float = _PATIENCE
) -> "subprocess.Popen[bytes] | None":
    """Start the server of a recording; it prints its address. Return its process.

    It learns that this process has ended by the end of its standard input.

    Args:
        path: File of the recording, which need not exist yet.
        settings: Settings of the rules.
        patience: Seconds after the end of this process, or after the last page was closed, that the
            server goes on.
    """
    start = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        "from gradscope.cli.run.view_server import main; main()"
    )
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", start],
            stdin=subprocess.PIPE,
            # The page's address goes to stderr: stdout is the script's.
            stdout=subprocess.DEVNULL,
            # Ctrl-C is for the run.
            start_new_session=True,
        )
        if child.stdin is not None:
            pickle.dump((path, settings, patience), child.stdin)
            child.stdin.flush()
    except OSError as error:
        show_note(f"--view could not start its server: {error.strerror}")
        return None
    return child


def main() -> None:
    """Serve the recording that standard input names."""
    from gradscope.cli.view import serving

    # Some containers forbid it.
    with suppress(OSError):
        os.nice(_NICE)
    path, settings, patience = pickle.load(sys.stdin.buffer)
    try:
        with serving([path], settings, 0) as server:
            write_line(f"note: {server.address} shows this run")
            _let_go_of_stderr()
            sys.stdin.buffer.read()
            _wait(server, patience)
    except GradscopeError as error:
        show_error(error)


def _let_go_of_stderr() -> None:
    """Close standard error: whoever reads what the run prints must not wait for the server."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stderr.fileno())
    os.close(nothing)


def _wait(server: "ViewServer", patience: float) -> None:
    """Wait until nobody has looked at a page for a while."""
    seen = time.monotonic()
    while time.monotonic() - seen < patience:
        if server.viewed:
            seen = time.monotonic()
        time.sleep(min(1, patience))
