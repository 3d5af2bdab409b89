"""Starts the server of `gradscope view`, in this process or beside a run."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.errors import GradscopeError
from gradscope.view.server import ViewServer

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.rules.settings import Settings
    from gradscope.view.pages import Pages

_POLL = 0.1
"""Seconds between two checks whether to stop."""
_BETWEEN, _SHARE = 0.2, 0.5
"""Seconds between two judgements for the list at least, and the largest share of the time."""


@contextmanager
def serving(paths: Sequence[Path], settings: "Settings", port: int) -> "Iterator[ViewServer]":
    """Serve recordings in threads of this process, until the block ends.

    Args:
        paths: Folders and recordings.
        settings: Settings of the rules.
        port: Port to listen on; 0 for any free one.

    Raises:
        GradscopeError: The port is taken.
    """
    try:
        server = ViewServer(lambda: _pages(paths, settings), port)
    except OSError as error:
        raise GradscopeError(
            f"cannot listen on port {port}", cause=error.strerror, help="leave --port out"
        ) from None
    threads = [
        threading.Thread(target=act, name=f"gradscope {name}", daemon=True)
        for name, act in (
            ("serve", lambda: server.serve_forever(_POLL)),
            ("judge", lambda: _judge(server)),
        )
    ]
    for thread in threads:
        thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _pages(paths: Sequence[Path], settings: "Settings") -> "Pages":
    from gradscope.view.catalogue import Catalogue
    from gradscope.view.library import Library
    from gradscope.view.pages import Pages

    reports_of = _reader(settings)
    return Pages(Catalogue(Library(paths), reports_of), reports_of)


def _reader(settings: "Settings") -> "Callable[[Sequence[Path]], list[Report]]":
    """Return a function that reads and judges recordings, one after the other."""
    turn = threading.Lock()

    def reports_of(paths: Sequence[Path]) -> "list[Report]":
        from gradscope.cli.rank_recordings import read_in_full, read_jobs
        from gradscope.cli.running import judged_job

        # Two at once would take twice the memory, and no less time.
        with turn:
            jobs = list(map(read_in_full, read_jobs(paths)))
            return [judged_job(job.recordings, settings) for job in jobs]

    return reports_of


def _judge(server: ViewServer) -> None:
    """Judge the recordings of the list, as long as somebody looks at it."""
    pause = _BETWEEN
    while not server.is_over.wait(pause):
        pause = _BETWEEN
        if () in server.viewed:  # the list
            began = time.monotonic()
            if not server.pages.catalogue.judge_one():
                pause = 1.0
            pause = max(pause, (time.monotonic() - began) / _SHARE)
