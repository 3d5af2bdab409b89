"""Where a command's report and recording go."""

import io
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import LOGGER, show_note
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.report.model import Report
    from gradscope.report.render import OutputFormat
    from gradscope.report.view import ViewOptions


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Set how much is told on stderr, for the whole process."""
    LOGGER.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.WARNING)


def check_destinations(output_file: str, save: Path | None, *, force: bool) -> None:
    """Make sure that results can be written, before anything slow is run.

    Raises:
        GradscopeError: A folder is missing, or a recording would be overwritten.
    """
    outputs = [] if output_file == "-" else [Path(output_file)]
    for path in [*outputs, *([] if save is None else [save])]:
        if not path.parent.is_dir():
            raise GradscopeError(
                f"cannot write {str(path)!r}",
                cause=f"there is no directory {str(path.parent)!r}",
                help=f"mkdir -p {path.parent}",
            )
        if path.is_dir():
            raise GradscopeError(f"cannot write {str(path)!r}", cause="it is a directory")
    if save is not None and save.exists() and not force:
        raise GradscopeError(
            f"{str(save)!r} exists already", help="add --force to overwrite it, or name another"
        )


def save_recording(report: "Report", path: Path, *, force: bool) -> None:
    """Save the recording and say so."""
    report.save(path, force=force)
    show_note(f"wrote {path}")


def write_report(
    report: "Report",
    output_format: "OutputFormat",
    view: "ViewOptions",
    *,
    output_file: str,
    stdout: TextIO,
    color: ColorChoice,
) -> None:
    """Render a report and write it to the file, or to stdout where that is `-`."""
    from gradscope.report.render import render

    console = make_console(stdout if output_file == "-" else io.StringIO(), color)
    write_text(render(report, output_format, view, console), output_file, stdout)


def write_text(text: str, output_file: str, stdout: TextIO) -> None:
    """Write a text and a line break to the file, or to stdout where that is `-`.

    Raises:
        GradscopeError: The file cannot be written.
    """
    if output_file != "-":
        try:
            Path(output_file).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise GradscopeError(f"cannot write {output_file!r}", cause=error.strerror) from None
        show_note(f"wrote {output_file}")
        return
    try:
        stdout.write(text + "\n")
        stdout.flush()
    except BrokenPipeError:
        # The reader (`head`) has seen enough; later flushes must not complain either.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        sys.stderr.flush()
