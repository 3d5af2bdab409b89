"""Tells what a script raises in the middle of gradscope's part from faults of gradscope's own."""

import signal
from traceback import walk_tb
from types import CodeType


def is_interruption(error: BaseException) -> bool:
    """Return whether a handler of a signal has raised an exception, as for a time limit.

    It may run in the middle of anything, and means the script.
    """
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    call = handler if hasattr(handler, "__code__") else getattr(handler, "func", None)
    if call is None and callable(handler):
        call = type(handler).__call__
    code = getattr(call, "__code__", None)
    return code if isinstance(code, CodeType) else None
