"""Keeps a fault of gradscope's own from reaching the script."""

import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gradscope.errors import GradscopeError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Guard:
    """Runs gradscope's part of a watched call, one thread at a time.

    Args:
        fail: Is given an exception of gradscope's; watching has ended by then.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._lock = threading.RLock()
        self._in_backward: set[int] = set()
        """The threads in which a backward runs."""
        self.active = True
        """False once watching has ended, and in processes that were forked off."""
        os.register_at_fork(after_in_child=self._let_go)

    def run(
        self,
        part: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result | None:
        """Return what a part returns, None where watching has ended."""
        with self._lock:
            if not self.active:
                return None
            try:
                if self._is_busy_elsewhere():
                    raise GradscopeError("several threads train at once, which cannot be followed")
                return part(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, the script must go on
                self.active = False
                self._fail(error)
                return None

    def glance(
        self,
        part: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result | None:
        """Do the same for a part that other threads may do without, as to see an evaluation."""
        with self._lock:
            return None if self._is_busy_elsewhere() else self.run(part, *args, **kwargs)

    def enter_backward(self) -> None:
        """Note, within a part, that this thread is about to run backward.

        While it runs nobody else may look at a gradient: torch puts it in its place under no lock
        of Python's, and to read it meanwhile would crash.
        """
        self._in_backward.add(threading.get_ident())

    def leave_backward(self) -> None:
        """Note that this thread's backward is over, with or without an exception."""
        self._in_backward.discard(threading.get_ident())

    def _is_busy_elsewhere(self) -> bool:
        return bool(self._in_backward) and self._in_backward != {threading.get_ident()}

    def _let_go(self) -> None:
        self.active = False
        self._lock = threading.RLock()  # another thread may have held it
