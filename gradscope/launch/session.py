"""Runs and records a program, from its import of torch to its end, in this process only."""

import os
import sys
from collections.abc import Callable
from typing import Protocol

from gradscope.frozen import dataclass
from gradscope.garbage import no_garbage_collection
from gradscope.launch.execution import Ending, execute
from gradscope.launch.imports import Shadows, after_torch_import
from gradscope.launch.program import Program
from gradscope.recording.evidence.training import RunEnding


class Watch(Protocol):
    """A recorder of a training."""

    @property
    def steps(self) -> int:
        """Number of optimizer steps recorded."""

    def start(self) -> None:
        """Start recording: torch has just been imported."""

    def see_end(self, error: BaseException) -> None:
        """Record the exception that ended the program."""

    def stop(self, ending: RunEnding) -> None:
        """End the recording, and restore torch. Further calls do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A program that has ended, and its recorder."""

    ending: Ending
    shadows: Shadows
    """gradscope's modules that were hidden from the program."""
    watch: Watch | None = None
    """None if the program never imported torch, or could not be recorded."""
    is_copy: bool = False
    """Whether this process was forked by the program. Such processes are not recorded."""


def run_watched(
    program: Program,
    make_watch: Callable[[], Watch],
    tell: Callable[[Exception], None],
) -> Outcome:
    """Run a program, and record it from its import of torch on.

    Args:
        program: The program to run.
        make_watch: Called when torch has been imported.
        tell: Called with an exception of gradscope's own. The program continues unrecorded.

    Raises:
        CannotRunError: There is no such program.
    """
    session = _Session(make_watch, tell)
    # In safe-path mode the program's folder is not on the import path, and shadows nothing.
    if not sys.flags.safe_path:
        session.shadows.hide(program.folder)
    with after_torch_import(session.begin):
        ending = execute(program, session.see_end)
    session.end(ending.how)
    return Outcome(
        ending=ending,
        shadows=session.shadows,
        watch=session.watch,
        is_copy=session.is_copy,
    )


class _Session:
    """The recorder, once there is one, and the process that it belongs to."""

    def __init__(self, make_watch: Callable[[], Watch], tell: Callable[[Exception], None]) -> None:
        self._make_watch, self._tell = make_watch, tell
        self._process = os.getpid()
        self.shadows = Shadows()
        self.watch: Watch | None = None

    @property
    def is_copy(self) -> bool:
        """Return whether this process was forked by the program."""
        return os.getpid() != self._process

    def begin(self) -> None:
        """Start recording: torch has just been imported."""
        if self.is_copy:
            return
        try:
            # Otherwise each garbage collection would traverse all of torch's objects.
            with self.shadows.lifted(), no_garbage_collection():
                watch = self._make_watch()
                watch.start()
                # Only now: a watch that could not start must not be stopped.
                self.watch = watch
        except Exception as error:  # noqa: BLE001 - the program is not to suffer from it
            self._tell(error)

    def see_end(self, error: BaseException) -> None:
        """Pass on the exception that ended the program."""
        if self.watch is None or self.is_copy:
            return
        try:
            with self.shadows.lifted():
                self.watch.see_end(error)
        except Exception as failure:  # noqa: BLE001 - as above
            self._tell(failure)

    def end(self, ending: RunEnding) -> None:
        """End the recording, if it started in this process."""
        if self.watch is None or self.is_copy:
            return
        try:
            with self.shadows.lifted():
                self.watch.stop(ending)
        except Exception as error:  # noqa: BLE001 - as above
            self._tell(error)
