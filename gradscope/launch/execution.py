"""Runs a program to its end, and says how it ended."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from gradscope.launch.endings import RETURNED, ending_by
from gradscope.launch.program import CannotRunError, Program, enter
from gradscope.launch.tracebacks import drop_own_frames
from gradscope.recording.run_ending import RunEnding


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended."""

    code: int = 0
    """Its exit code."""
    is_interrupted: bool = False
    """Whether Ctrl-C ended it."""
    how: RunEnding = RETURNED
    """For the record."""


def execute(program: Program, see_end: Callable[[BaseException], None]) -> Ending:
    """Run a program as python would, with all of its threads.

    What it did not catch has been told on stderr, by its own `sys.excepthook` where it has one.

    Args:
        program: What to run.
        see_end: Is given what it did not catch, before that is told.

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
    # Outside of the handler: what runs from here on must not see an exception being handled.
    ending = Ending() if raised is None else _ended_by(raised)
    del raised
    try:
        # Python waits for them before what is registered with atexit; so they are watched as well.
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
    except KeyboardInterrupt as error:
        return _ended_by(error)
    return ending


def _ended_by(error: BaseException) -> Ending:
    how = ending_by(error)
    if isinstance(error, SystemExit):
        return Ending(code=_left(error.code), how=how)
    drop_own_frames(error)
    code = _show(error)
    if code is not None:
        return Ending(code=code, how=replace(how, code=code))
    return Ending(code=1, is_interrupted=isinstance(error, KeyboardInterrupt), how=how)


def _left(code: object) -> int:
    """Return the exit code that `sys.exit` makes of something; a text is told on stderr."""
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{code}\n")
    return 1


def _show(error: BaseException) -> int | None:
    """Tell of an exception as python does; return the exit code where the hook for it left one."""
    kind, traceback = type(error), error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, traceback
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(kind, error, traceback)
    except SystemExit as leaving:
        return _left(leaving.code)
    except BaseException as failure:  # noqa: BLE001 - python shows both
        drop_own_frames(failure)
        failure.__context__ = None
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(kind, error, traceback)
    return None


def leave(ending: Ending, code: int) -> NoReturn:
    """End this process: by SIGINT where Ctrl-C ended the program, else with an exit code."""
    if not ending.is_interrupted:
        raise SystemExit(code)
    # Python ends itself by the signal, after all that it does at its end. It has been told already.
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt
