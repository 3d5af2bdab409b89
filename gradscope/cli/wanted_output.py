"""Which report a command writes where: what the options and a file's ending say together."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradscope.cli.errors import show_note
from gradscope.cli.output import Destination
from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError

_PAGES = (".html", ".htm")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOutput:
    """A report's format, and its file."""

    form: OutputFormat
    file: str
    """`-` is stdout, or where the command writes otherwise."""
    is_opened: bool
    """Whether a browser is to show it."""

    def open(self, destination: Destination | None) -> None:
        """Show the written page in a browser, where that was asked for."""
        if not self.is_opened or destination is None:
            return
        # Whoever opens no page needs none of what looks for a browser.
        import webbrowser

        if not webbrowser.open(destination.path.as_uri()):
            show_note(f"no browser found: open {destination.text} yourself")


def wanted_output(
    form: OutputFormat | None,
    file: str,
    *,
    is_opened: bool,
    subject: str,
    default: OutputFormat | None = None,
    streams: Sequence[str] = ("-",),
) -> WantedOutput:
    """Return what is written where, before anything slow is run.

    Args:
        form: The format asked for; None leaves it to the file's ending, then to the default.
        file: The file asked for, or one of `streams`.
        is_opened: Whether a browser is to show the page.
        subject: What is reported on, which names a page that nobody named.
        default: The format of the configuration.
        streams: What stands for no file.

    Raises:
        GradscopeError: A page would fill the terminal, or something is to be opened that is none.
    """
    is_stream = file in streams
    is_page = is_opened or (not is_stream and Path(file).suffix.lower() in _PAGES)
    chosen = form or ("html" if is_page else default or "full")
    if is_opened and chosen != "html":
        raise GradscopeError(
            f"--open needs HTML, but --output-format is {chosen}",
            help="remove one of them",
        )
    if is_opened and is_stream:
        file = str(_page_for(subject))
    elif chosen == "html" and is_stream and (file != "-" or sys.stdout.isatty()):
        raise GradscopeError(
            "html is a page of several megabytes: write it to a file",
            help="add -o report.html, or --open",
        )
    return WantedOutput(form=chosen, file=file, is_opened=is_opened)


def _page_for(subject: str) -> Path:
    """Return a file in a new folder among the temporary ones."""
    # Who opens no page needs none of it, and a script that is run is not to find it imported.
    import tempfile

    name = Path(subject.partition(":")[0]).stem or "report"
    return Path(tempfile.mkdtemp(prefix="gradscope-")) / f"{name}.html"
