"""Runs a program to its end, and describes how it ended."""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from gradscope.frozen import dataclass
from gradscope.launch.program import CannotRunError, Program, enter
from gradscope.launch.tracebacks import drop_own_frames
from gradscope.recording.evidence.training import EndingKind, RunEnding

TELLING_SECONDS = 1.0
"""CPU seconds above which child processes are reported. The import of torch alone takes more."""


def seconds_of_children() -> float:
    """Return the CPU seconds of this process's children that have ended; 0 on Windows."""
    times = os.times()
    return times.children_user + times.children_system


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restore the state of Python's random number generator after the block."""
    # Read from `sys.modules`, as the program has it: an import could load another module.
    random: Any = sys.modules.get("random")
    if not hasattr(random, "getstate"):
        yield
        return
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"

_INSTALLED = ("site-packages", "dist-packages", "<frozen ")

_LONGEST = 120

RETURNED = RunEnding(kind="returned", code=0)
"""The program ran to its last line."""

_OPTION = "__gradscope_option__"


def stopping(option: str) -> SystemExit:
    """Return the exception that ends a program as an option of gradscope requests.

    It is a plain `SystemExit`: threads ignore that class itself silently, subclasses not.

    Args:
        option: The option as it was given: `--stop-after 5`.
    """
    leaving = SystemExit(0)
    setattr(leaving, _OPTION, option)
    return leaving


def ending_by(error: BaseException) -> RunEnding:
    """Return how a program ended that was left by an exception."""
    option = vars(error).get(_OPTION)
    if isinstance(option, str):
        return RunEnding(kind="stopped", code=0, message=option)
    match error:
        case SystemExit(code=None):
            return RunEnding(kind="exited", code=0)
        case SystemExit(code=int(code)):
            return RunEnding(kind="exited", code=int(code))
        case SystemExit():
            return RunEnding(kind="exited", code=1, message=_first_line(error.code))
    kind: EndingKind = "interrupted" if isinstance(error, KeyboardInterrupt) else "raised"
    file, line = _position(error.__traceback__)
    return RunEnding(
        kind=kind,
        code=1,
        exception=type(error).__name__,
        message=_first_line(error),
        file=file,
        line=line,
    )


def _first_line(value: object) -> str:
    try:
        lines = str(value).split("\n")
    except BaseException:  # noqa: BLE001 - it runs code of the program's, which may even exit
        return ""
    text = lines[0].strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _position(traceback: TracebackType | None) -> tuple[str, int | None]:
    """Return the innermost line of the user's own code; of installed code if there is none."""
    lines: list[tuple[str, int | None]] = []
    while traceback is not None:
        lines.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    lines = [position for position in lines if not position[0].startswith(_PACKAGE)]
    own = [position for position in lines if not _is_installed(position[0])]
    return (own or lines or [("", None)])[-1]


def _is_installed(file: str) -> bool:
    return file.startswith(sysconfig.get_path("stdlib")) or any(part in file for part in _INSTALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a program."""

    code: int = 0
    """Exit code."""
    is_interrupted: bool = False
    """Whether Ctrl-C ended it."""
    how: RunEnding = RETURNED
    """The ending for the recording."""


def execute(program: Program, see_end: Callable[[BaseException], None]) -> Ending:
    """Run a program as python would, with all of its threads.

    Uncaught exceptions are shown on stderr, by the program's own `sys.excepthook` if it has one.

    Args:
        program: The program to run.
        see_end: Called with an uncaught exception, before it is shown.

    Raises:
        CannotRunError: There is no such program.
    """
    raised: BaseException | None = None
    try:
        exec(enter(program), sys.modules["__main__"].__dict__)
    except CannotRunError:
        raise
    except BaseException as error:  # noqa: BLE001 - as python does at the top of a script
        raised = error
        see_end(error)
    # Outside of the handler: later code must not see an exception being handled.
    ending = Ending() if raised is None else _ended_by(raised)
    # The traceback holds the frames of the program, and these its model.
    del raised
    try:
        # Python joins these threads before it runs atexit functions, so they are recorded too.
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
    except KeyboardInterrupt as error:
        return _ended_by(error)
    return ending


def _ended_by(error: BaseException) -> Ending:
    how = ending_by(error)
    if isinstance(error, SystemExit):
        return Ending(code=_left(error.code), how=how)
    # Before the hook, which may be the program's own and print the traceback.
    drop_own_frames(error)
    code = _show(error)
    if code is not None:
        return Ending(code=code, how=replace(how, code=code))
    return Ending(code=1, is_interrupted=isinstance(error, KeyboardInterrupt), how=how)


def _left(code: object) -> int:
    """Return the exit code for an argument of `sys.exit`; a text is written to stderr."""
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{code}\n")
    return 1


def _show(error: BaseException) -> int | None:
    """Show an exception as python does; return the exit code if the exception hook exits."""
    kind, traceback = type(error), error.__traceback__
    # Python sets these for debuggers, before it calls the hook.
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, traceback
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(kind, error, traceback)
    except SystemExit as leaving:
        return _left(leaving.code)
    except BaseException as failure:  # noqa: BLE001 - python shows both
        drop_own_frames(failure)
        # Python shows the failure of the hook without the exception that it was given.
        failure.__context__ = None
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(kind, error, traceback)
    return None


def leave(ending: Ending, code: int) -> NoReturn:
    """End this process: by SIGINT if Ctrl-C ended the program, otherwise with an exit code."""
    if not ending.is_interrupted:
        raise SystemExit(code)
    # Python ends itself by the signal, after its own cleanup. The exception was shown already.
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt
