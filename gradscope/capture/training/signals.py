"""Postpones what signals do while a step is written: an exception of theirs would leave a half."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM")
"""Signals whose handlers usually raise: for Ctrl-C, the end of a job, and a time limit."""

_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


@contextmanager
def postponed_signals(later: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Pass the calls of the script's signal handlers inside the block to `later`.

    Handlers run in the main thread only, between any two instructions. Where one raises, for
    example `KeyboardInterrupt`, the rest of the block would not run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {int(number): signal.getsignal(number) for number in _NUMBERS}

    def postpone(number: int, _: FrameType | None) -> None:
        handler = handlers[number]
        if callable(handler):
            later(lambda: _call(handler, number))

    replaced = [number for number, handler in handlers.items() if callable(handler)]
    try:
        for number in replaced:
            signal.signal(number, postpone)
        yield
    finally:
        for number in reversed(replaced):
            signal.signal(number, handlers[number])


def _call(handler: Callable[[int, FrameType], object], number: int) -> None:
    handler(number, sys._getframe())
