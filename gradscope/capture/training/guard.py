"""Keeps a fault of gradscope's own from reaching the script."""

import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

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
                return part(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, the script must go on
                self.active = False
                self._fail(error)
                return None

    def _let_go(self) -> None:
        self.active = False
        self._lock = threading.RLock()  # another thread may have held it
