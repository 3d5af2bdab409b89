"""The streams of the command line: the console of each, and stdout kept for the report."""

import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

ColorChoice = Literal["auto", "always", "never"]

WIDTH_OFF_TERMINAL = 120

_STDOUT = 1
_STDERR = 2


def wants_color(choice: ColorChoice, stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to write colour.

    `--color` comes first, then NO_COLOR, then FORCE_COLOR, then the terminal. Empty variables do
    not count.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def make_console(stream: TextIO, choice: ColorChoice) -> "Console":
    """Return a console for a stream; it prints names as they are, never as markup."""
    # Deferred: the import draws random numbers, which would change those of a script.
    from rich.console import Console

    has_color = wants_color(choice, stream, os.environ)
    is_terminal = stream.isatty()
    console = Console(
        file=stream,
        # rich alone would still write bold escapes under FORCE_COLOR together with NO_COLOR.
        color_system="auto" if has_color else None,
        force_terminal=has_color,
        no_color=not has_color,
        # By default, rich takes `[...]` in names for markup and `:bug:` for an emoji, and colours
        # numbers.
        markup=False,
        highlight=False,
        emoji=False,
        width=_width(is_terminal, os.environ.get("COLUMNS", "")),
    )
    # rich may find no colours although they are asked for, as under TERM=dumb.
    if has_color and console.color_system is None:
        return Console(
            file=stream,
            color_system="standard",
            force_terminal=True,
            no_color=False,
            markup=False,
            highlight=False,
            emoji=False,
            width=console.width,
        )
    return console


def _width(is_terminal: bool, columns: str) -> int | None:
    """Return the width of a console; None leaves it to rich, which reads `COLUMNS` first."""
    if columns.isdigit() and int(columns) == 0:  # some terminals report an unknown width as 0
        return shutil.get_terminal_size().columns if is_terminal else WIDTH_OFF_TERMINAL
    return None if is_terminal or columns else WIDTH_OFF_TERMINAL


def open_streams() -> None:
    """Open those of stdin, stdout and stderr on the null device that the caller has closed.

    Otherwise the next opened file would get the descriptor, and everything that is printed.
    """
    for descriptor, name, mode in (
        (0, "stdin", "r"),
        (_STDOUT, "stdout", "w"),
        (_STDERR, "stderr", "w"),
    ):
        if not _is_open(descriptor):
            nothing = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            os.set_inheritable(nothing, True)
        if getattr(sys, name) is None:
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


@contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Yield a stream to the real stdout; everything else written to stdout goes to stderr.

    File descriptor 1 itself is pointed at stderr, so that C code and child processes are covered.
    Where `sys.stdout` is no longer descriptor 1 (replaced or captured), that object is yielded.
    """
    real = sys.stdout
    with ExitStack() as undo:
        undo.enter_context(redirect_stdout(sys.stderr))
        if not (_is_open(_STDOUT) and _is_open(_STDERR)):
            yield real or io.StringIO()
            return
        _flush(real)
        saved = os.dup(_STDOUT)
        undo.callback(os.close, saved)
        os.dup2(_STDERR, _STDOUT)
        # Buffered output of user code must be flushed before stdout is restored.
        undo.callback(os.dup2, saved, _STDOUT)
        undo.callback(_flush, real)
        if not _writes_to(real, _STDOUT):
            yield real
            return
        encoding = real.encoding
        stream = open(saved, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115 - a descriptor, closed by the next line
        yield undo.enter_context(stream)


def seal_stdout() -> None:
    """Redirect stdout to stderr for the rest of the process: user code may print at exit."""
    if _is_open(_STDOUT) and _is_open(_STDERR) and _writes_to(sys.stdout, _STDOUT):
        _flush(sys.stdout)
        os.dup2(_STDERR, _STDOUT)


def _flush(stream: TextIO | None) -> None:
    """Flush Python's buffer and that of C's stdio."""
    if stream is not None and not stream.closed:
        stream.flush()
    if os.name == "posix":
        import ctypes

        # Libraries in C have buffers of their own, which would be written after the report.
        ctypes.CDLL(None).fflush(None)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _writes_to(stream: TextIO | None, descriptor: int) -> bool:
    if stream is None or stream.closed:
        return False
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError, AttributeError):
        # io.UnsupportedOperation is an OSError: streams in memory have no descriptor.
        return False
