"""`gradscope view`: its command, and its server in threads of this process."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.cli import options
from gradscope.cli.errors import QUIET, VERBOSITY, show_note
from gradscope.cli.options import with_groups
from gradscope.cli.output import open_address, set_verbosity
from gradscope.cli.rank_recordings import check_not_script, rank_files
from gradscope.cli.running import settings_of
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option
from gradscope.view.server import ViewServer

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.rules.settings import Settings
    from gradscope.view.pages import Pages


_POLL = 0.1
"""Seconds between two checks whether to stop."""
_BETWEEN, _SHARE = 0.2, 0.5
"""Seconds between two judgements for the list at least, and the largest share of the time."""


ViewArguments = Annotated[
    list[Path] | None,
    Argument(
        metavar="FOLDER|RECORDING...",
        help="Folders to search for recordings, and single ones. Default: the working directory.",
        show_default=False,
    ),
]
PortOption = Annotated[
    int,
    Option(
        "--port",
        min=0,
        max=65_535,
        metavar="N",
        help="Port to listen on. Default: any free one.",
        panel="Server",
        show_default=False,
    ),
]
OpenOption = Annotated[bool, Option("--open", help="Open the page in a browser.", panel="Server")]


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
    from gradscope.view.catalogue import Catalogue, Library
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


@with_groups
def view(
    *,
    given: ViewArguments = None,
    port: PortOption = 0,
    open_page: OpenOption = False,
    rules: options.RuleOptions,
    quiet: options.NoProgressOption = False,
) -> None:
    """Show recordings in a browser, and keep their pages current while trainings go on.

    The server listens on 127.0.0.1 only, and answers only addresses with its token. Ctrl-C ends it.
    """
    set_verbosity(quiet=quiet, verbose=False)
    paths = given or [Path()]
    for path in paths:
        check_not_script(path)
        if not path.exists() and not rank_files(path):
            raise GradscopeError(
                f"no such file or folder: {str(path)!r}", help="gradscope view FOLDER"
            )
    settings = settings_of(rules)
    # Ctrl-C is the usual end.
    with suppress(KeyboardInterrupt), serving(paths, settings, port) as server:
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        show_note("only this machine can open the address. Ctrl-C ends the server")
        # From here on, stages of reading and judging are nobody's progress.
        VERBOSITY.level = QUIET
        if open_page:
            open_address(server.address)
        wait_for_end(server)


def wait_for_end(server: "ViewServer") -> None:
    """Wait until the server ends."""
    server.is_over.wait()
