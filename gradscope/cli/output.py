"""Chooses and checks a command's formats and destinations, and writes its report."""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gradscope.cli.console import ColorChoice, make_console
from gradscope.cli.errors import NORMAL, QUIET, VERBOSE, VERBOSITY, show_note, write_line
from gradscope.cli.progress import erase_progress
from gradscope.config.formats import OutputFormat
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.progress import tell_stage

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.analysis.view import ViewOptions
    from gradscope.check.options import PlannedTarget


_PAGES = (".html", ".htm")
_FORMATS: Mapping[str, OutputFormat] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".sarif": "sarif",
}
"""By extension: the format of a report, where neither an option nor the configuration has one."""
_NOT_WRITTEN = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".docx"})
_RECORDING = ".gradscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A file to write."""

    text: str
    """Destination as written by the user."""
    path: Path
    """Absolute path: the target's code may change the working directory."""


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
        open_address(destination.path.as_uri(), destination.text)


def open_address(address: str, shown: str = "it") -> None:
    """Open an address in a browser; where there is none, name what to open."""
    # Deferred: only --open needs it.
    import webbrowser

    if not webbrowser.open(address):
        show_note(f"no browser found: open {shown} yourself")


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
        GradscopeError: A page would be written to the terminal, --open gets another format, or the
            file's extension is that of a format that reports do not have.
    """
    is_stream = file in streams
    extension = "" if is_stream else Path(file).suffix.lower()
    if extension in _NOT_WRITTEN:
        raise GradscopeError(
            f"reports have no format for {extension} files: {file!r}",
            help="-o report.html writes a page, which a browser prints to PDF",
        )
    is_page = is_opened or extension in _PAGES
    chosen = form or ("html" if is_page else default or _FORMATS.get(extension, "full"))
    if is_opened and chosen != "html":
        raise GradscopeError(
            f"--open needs HTML, but --output-format is {chosen}",
            help="remove one of them",
        )
    if is_opened and is_stream:
        file = str(_page_for(subject))
    elif chosen == "html" and is_stream and (file != "-" or sys.stdout.isatty()):
        # A pipe or a redirection is as good as a file.
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


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Set the amount of messages on stderr, for the whole process."""
    VERBOSITY.level = QUIET if quiet else VERBOSE if verbose else NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """Destinations of the results of a command."""

    report: Destination | None
    """Destination of the report; None for stdout."""
    recording: Destination | None


def check_destinations(
    output_file: str,
    save: Path | None,
    *,
    force: bool,
    inputs: Iterable[Path] = (),
    report_option: str = "-o",
) -> Destinations:
    """Make sure that results can be written, before anything slow is run.

    Args:
        output_file: File of the report; `-` for stdout.
        save: File of the recording; None for none.
        force: Whether a recording may be overwritten.
        inputs: Files that the command reads, which are never overwritten.
        report_option: The option that names the report's file, for messages.

    Raises:
        GradscopeError: A folder is missing, something would be overwritten, or the report's file
            has the suffix of a recording.
    """
    report = None if output_file == "-" else _destination(output_file)
    recording = None if save is None else _destination(str(save))
    read = {path.resolve() for path in inputs}
    for option, destination in ((report_option, report), ("--save", recording)):
        if destination is not None and destination.path in read:
            raise GradscopeError(
                f"{option} {destination.text!r} would overwrite what the command reads",
                help="name another file",
            )
    if report is not None and report.path.suffix == _RECORDING:
        raise GradscopeError(
            f"{report_option} {report.text!r} is a report, but ends as a recording does",
            help=f"--save {report.text}",
        )
    if report is not None and recording is not None and report.path == recording.path:
        raise GradscopeError(
            f"-o and --save both name {report.text!r}", help="give each its own file"
        )
    if recording is not None and recording.path.exists() and not force:
        raise GradscopeError(
            f"{recording.text!r} already exists",
            help="add --force to overwrite it, or name another file",
        )
    return Destinations(report=report, recording=recording)


def files_of_target(planned: "PlannedTarget") -> tuple[Path, ...]:
    """Return the files that may hold the code of a target, given as a path or a module."""
    # The parser knows where EXPR begins; it needs no torch.
    from gradscope.target.notation import parse_target

    location = parse_target(planned.spec).location
    module = Path(*location.split("."))
    files = (Path(location), Path(f"{module}.py"), module / "__init__.py")
    return tuple(planned.folder / file for file in files)


def _destination(text: str) -> Destination:
    path = Path(text)
    # `exists` takes a name with a null character for a missing file.
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name too long, or with a null character
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise GradscopeError(f"cannot write {text!r}", cause=cause) from None
    if not path.parent.is_dir():
        raise GradscopeError(
            f"cannot write {text!r}",
            cause=f"no such directory: {str(path.parent)!r}",
            help=f"mkdir -p {path.parent}",
        )
    if path.is_dir():
        raise GradscopeError(f"cannot write {text!r}", cause="it is a directory")
    return Destination(text=text, path=path.resolve())


def save_recording(report: "Report", destination: Destination, *, force: bool) -> None:
    """Save the recording and say so."""
    from gradscope.recording import store  # deferred: it imports sqlite3

    store.save_recording(report.recording, destination.path, force=force)
    show_note(f"wrote {destination.text}")


def write_report(
    report: "Report",
    output_format: "OutputFormat",
    view: "ViewOptions",
    *,
    destination: Destination | None,
    stdout: TextIO,
    color: ColorChoice,
    is_brief: bool = False,
) -> None:
    """Render a report and write it to the file, or to stdout without one."""
    from gradscope.report.render import Manner, finding_lines, render, together

    tell_stage("writing the report")
    console = make_console(stdout if destination is None else io.StringIO(), color)
    text = render(report, output_format, view, console, Manner(is_brief=is_brief))
    findings = finding_lines(together([report])) if destination is not None else ()
    write_text(text, destination, stdout, outcome=outcome_of(report), findings=findings)


def outcome_of(report: "Report") -> str:
    """Return the outcome in words, for a note on stderr; empty if nothing was judged."""
    from gradscope.report.finding_phrasing import found_text

    return found_text(report) or ("no findings" if report.rules.ran else "")


def write_text(
    text: str,
    destination: Destination | None,
    stdout: TextIO,
    outcome: str = "",
    findings: Iterable[str] = (),
) -> None:
    """Write a text and a line break to the file, or to stdout without one.

    Args:
        text: The text.
        destination: The file; None for stdout.
        stdout: The stream that stands for stdout.
        outcome: Outcome to report on stderr if the text goes to a file.
        findings: Lines to print there before.

    Raises:
        GradscopeError: The file cannot be written.
    """
    if destination is not None:
        from gradscope.files import written_whole

        try:
            with written_whole(destination.path) as path:
                path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise GradscopeError(
                f"cannot write {destination.text!r}", cause=error.strerror
            ) from None
        for line in findings:
            write_line(line)
        show_note(f"wrote {destination.text}" + (f": {outcome}" if outcome else ""))
        return
    erase_progress()
    # The terminal's encoding may lack signs of the report: they are escaped.
    encoding = getattr(stdout, "encoding", None) or "utf-8"
    with pipe_may_close(stdout):
        stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


@contextmanager
def pipe_may_close(stdout: TextIO) -> Iterator[None]:
    """Flush stdout at the end of the block; its reader may close it early.

    Raises:
        GradscopeError: stdout cannot be written.
    """
    try:
        yield
        stdout.flush()
    except OSError as error:
        # Later flushes must not complain a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `head` closes the pipe when it has enough
            raise GradscopeError("cannot write to stdout", cause=error.strerror) from None
