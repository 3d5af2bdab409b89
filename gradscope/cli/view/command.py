"""`gradscope view`."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.cli import options
from gradscope.cli.errors import QUIET, VERBOSITY, show_note
from gradscope.cli.options import with_groups
from gradscope.cli.output import open_address, set_verbosity
from gradscope.cli.rank_recordings import check_not_script, rank_files
from gradscope.cli.running import settings_of
from gradscope.cli.view.serving import serving
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Argument, Option

if TYPE_CHECKING:
    from gradscope.view.server import ViewServer

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
