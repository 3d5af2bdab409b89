"""Shows errors on stderr: those of user code with a traceback, gradscope's own as bugs."""

import contextlib
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, print_exception
from types import TracebackType

from gradscope.errors import ExitCode, GradscopeError, UserCodeError

QUIET, NORMAL, VERBOSE = -1, 0, 1


@dataclass(slots=True)
class Verbosity:
    """Amount of messages on stderr.

    It is not the level of a logger: a script would find that logger among its own.
    """

    level: int = NORMAL


VERBOSITY = Verbosity()
"""Verbosity of this process: `-v` makes it VERBOSE, `-q` QUIET."""

_OWN_FOLDER = str(Path(__file__).resolve().parents[1])


def show_error(error: GradscopeError) -> None:
    """Print an error in up to three lines, after the traceback of user code that raised."""
    show_traceback(error)
    write_line(f"error: {error.what}")
    if error.cause is not None:
        write_line(f"  cause: {error.cause}")
    if error.help is not None:
        write_line(f"  help: {error.help}")
    sys.stderr.flush()


def show_traceback(error: GradscopeError) -> None:
    """Print the traceback of user code that raised; nothing for another error."""
    if isinstance(error, UserCodeError) and error.__cause__ is not None:
        told = user_traceback(error.__cause__, is_full=VERBOSITY.level >= VERBOSE)
        sys.stderr.write(printable(told))
        sys.stderr.flush()


def show_note(text: str) -> None:
    """Print a note, unless the user asked for errors only."""
    if VERBOSITY.level > QUIET:
        write_line(f"note: {text}")


def write_line(text: str) -> None:
    """Print one line on stderr; line breaks in it become spaces."""
    line = " ".join(text.splitlines())
    sys.stderr.write(printable(line) + "\n")


def printable(text: str) -> str:
    """Return the text with control characters as escapes, which terminals would obey."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1]
        for letter in text
    )


def user_traceback(error: BaseException, *, is_full: bool) -> str:
    """Return the traceback of an exception and of its causes.

    Frames of gradscope, torch and the import machinery are left out, unless it is to be full.
    """
    told = TracebackException.from_exception(error)
    if not is_full:
        _trim(told)
    return "".join(told.format())


def _trim(told: TracebackException) -> None:
    told.stack = StackSummary.from_list([frame for frame in told.stack if _is_users(frame)])
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _trim(other)


def _is_users(frame: FrameSummary) -> bool:
    if frame.filename.startswith("<frozen"):
        return False
    hidden = [_OWN_FOLDER, str(Path(sysconfig.get_path("stdlib"), "importlib"))]
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__ is not None:
        hidden.append(str(Path(torch.__file__).parent))
    if frame.filename == contextlib.__file__:  # decorators of torch's functions and ours
        return False
    return not any(frame.filename.startswith(f"{folder}/") for folder in hidden)


class BugReport:
    """Context that reports an exception as a bug in gradscope, with exit code 2.

    Python's own exit code would be 1, which means findings.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(ExitCode.INTERRUPTED) from None
        # SystemExit ends a command as it is meant to.
        if not isinstance(error, Exception):
            return
        write_line("error: this is a bug in gradscope; please report it with the traceback below")
        print_exception(error, file=sys.stderr)
        raise SystemExit(ExitCode.CANNOT_JUDGE) from None
