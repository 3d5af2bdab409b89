"""Runs a program under watch: from its import of torch to its end, in this process only."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gradscope.launch.execution import Ending, execute
from gradscope.launch.program import Program
from gradscope.launch.torch_import import after_torch_import


class Watch(Protocol):
    """What looks at a training."""

    @property
    def steps(self) -> int:
        """How many steps of an optimizer it has seen."""

    def start(self) -> None:
        """Begin: torch has just been imported."""

    def stop(self) -> None:
        """End, and leave nothing behind; a second time does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A program that has ended, and what watched it."""

    ending: Ending
    watch: Watch | None
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
    own = os.getpid()
    watches: list[Watch] = []

    def begin() -> None:
        if os.getpid() != own:
            return
        try:
            watch = make_watch()
            watch.start()
        except Exception as error:  # noqa: BLE001 - the program is not to suffer from it
            tell(error)
        else:
            watches.append(watch)

    with after_torch_import(begin):
        ending = execute(program)
    if os.getpid() != own:
        return Outcome(ending=ending, watch=None, is_copy=True)
    for watch in watches:
        try:
            watch.stop()
        except Exception as error:  # noqa: BLE001
            tell(error)
    return Outcome(ending=ending, watch=watches[0] if watches else None)
