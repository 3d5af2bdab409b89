"""Runs a program under watch: from its import of torch to its end, in this process only."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gradscope.capture.garbage import no_garbage_collection
from gradscope.launch.execution import Ending, execute
from gradscope.launch.program import Program
from gradscope.launch.shadows import Shadows
from gradscope.launch.torch_import import after_torch_import
from gradscope.recording.run_ending import RunEnding


class Watch(Protocol):
    """What looks at a training."""

    @property
    def steps(self) -> int:
        """How many steps of an optimizer it has seen."""

    def start(self) -> None:
        """Begin: torch has just been imported."""

    def see_end(self, error: BaseException) -> None:
        """Take in the exception that has ended the program."""

    def stop(self, ending: RunEnding) -> None:
        """End, as the training did, and leave nothing behind; a second time does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A program that has ended, and what watched it."""

    ending: Ending
    shadows: Shadows
    """The modules of gradscope's that the program did not get to see."""
    watch: Watch | None = None
    """None where the program never imported torch, or could not be watched."""
    is_copy: bool = False
    """Whether this is a process that the program has forked: it is not watched."""


def run_watched(
    program: Program,
    make_watch: Callable[[], Watch],
    tell: Callable[[Exception], None],
) -> Outcome:
    """Run a program, and watch it from its import of torch on.

    Args:
        program: What to run.
        make_watch: Called when torch has been imported.
        tell: Called with an exception of the watch's own; the program goes on without it.

    Raises:
        CannotRunError: There is no such program.
    """
    session = _Session(make_watch, tell)
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
    """A watch, where there is one by now, in the process that it belongs to."""

    def __init__(self, make_watch: Callable[[], Watch], tell: Callable[[Exception], None]) -> None:
        self._make_watch, self._tell = make_watch, tell
        self._process = os.getpid()
        self.shadows = Shadows()
        self.watch: Watch | None = None

    @property
    def is_copy(self) -> bool:
        """Whether this is a process that the program has forked."""
        return os.getpid() != self._process

    def begin(self) -> None:
        """Begin to watch: torch has just been imported."""
        if self.is_copy:
            return
        try:
            # The collector would go through all of torch again and again.
            with self.shadows.lifted(), no_garbage_collection():
                watch = self._make_watch()
                watch.start()
                self.watch = watch
        except Exception as error:  # noqa: BLE001 - the program is not to suffer from it
            self._tell(error)

    def see_end(self, error: BaseException) -> None:
        """Hand on the exception that has ended the program."""
        if self.watch is None or self.is_copy:
            return
        try:
            with self.shadows.lifted():
                self.watch.see_end(error)
        except Exception as failure:  # noqa: BLE001 - as above
            self._tell(failure)

    def end(self, ending: RunEnding) -> None:
        """End the watching, where it has begun in this process."""
        if self.watch is None or self.is_copy:
            return
        try:
            with self.shadows.lifted():
                self.watch.stop(ending)
        except Exception as error:  # noqa: BLE001 - as above
            self._tell(error)
