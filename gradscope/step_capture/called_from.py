"""Calls functions as if from another line: what they warn about is then reported for that line.

A warning belongs to the line that called. A mode in between would take it to itself, and Python
would show it once in place of once for each line. This module does not import torch: it is
imported before a script.
"""

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, cast

from gradscope.capture.frames import uncounted

NAME = "<gradscope>"
"""What the frames of such calls are called, which stand in tracebacks."""


_Call = Callable[[Callable[..., object], tuple[object, ...], Mapping[str, object]], object]


_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


class CalledFrom:
    """Makes calls from the line that a frame is at."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int, int], tuple[_Call, CodeType]] = {}
        """By `id` of code and globals, and line; with the code, which so stays the one."""

    @uncounted
    def __call__(
        self,
        frame: FrameType,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
    ) -> object:
        """Call a function from where a frame is, and return what it returns."""
        if isinstance(sys.gettrace(), FunctionType | MethodType):
            # A debugger, or a script's own, would be shown the line once more, in another frame.
            return func(*args, **(kwargs or {}))
        code, line, names = frame.f_code, frame.f_lineno, frame.f_globals
        key = (id(code), line, id(names))
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = (_call_at(code.co_filename, line, names), code)
        return known[0](func, args, kwargs or {})

    def clear(self) -> None:
        """Forget the lines."""
        self._calls.clear()


def _call_at(file: str, line: int, names: dict[str, Any]) -> _Call:
    code = _CALL.replace(co_filename=file, co_firstlineno=line, co_name=NAME, co_qualname=NAME)
    return cast("_Call", FunctionType(code, names))
