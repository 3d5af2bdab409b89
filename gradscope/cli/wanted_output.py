"""Chooses the format and the file of a report, from the options and the file's extension."""

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
    """Path of the file; `-` for stdout."""
    is_opened: bool
    """Whether a browser opens the report."""

    def open(self, destination: Destination | None) -> None:
        """Open the written page in a browser, with `--open`."""
        if not self.is_opened or destination is None:
            return
        # Deferred: only --open needs it.
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
    """Return the format and the file of a report, before anything slow runs.

    Args:
        form: Given format; None leaves it to the file's extension, then to the default.
        file: Given file, or one of `streams`.
        is_opened: Whether a browser opens the page.
        subject: Subject of the report, which names a page without a given file.
        default: Format of the configuration.
        streams: Texts that stand for a stream instead of a file.

    Raises:
        GradscopeError: A page would be written to the terminal, or --open gets another format.
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
    """Return a file in a new temporary folder."""
    # Deferred: only --open needs it, and a script must not find it imported.
    import tempfile

    name = Path(subject.partition(":")[0]).stem or "report"
    return Path(tempfile.mkdtemp(prefix="gradscope-")) / f"{name}.html"
