"""Calls functions so that warnings and tracebacks show another line.

A warning belongs to the calling line. A mode in between would become that line, and Python would
show the warning once instead of once per line. This module does not import torch: it is imported
before a script.
"""

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, cast

from gradscope.capture.interpreter import uncounted
from gradscope.capture.observed_calls import Args, Function, Kwargs

NAME = "<gradscope>"
"""File name of the frames of such calls in tracebacks."""


_Call = Callable[[Callable[..., object], tuple[object, ...], Mapping[str, object]], object]


_CALL = (lambda func, args, kwargs: func(*args, **kwargs)).__code__


class CalledFrom:
    """Makes calls from the current line of a frame."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int, int], tuple[_Call, CodeType]] = {}
        """By `id` of code and globals, and line; with the code, to keep its `id` valid."""

    @uncounted
    def __call__(self, frame: FrameType, func: Function, args: Args, kwargs: Kwargs) -> object:
        """Call a function from a frame's location, and return its result."""
        if isinstance(sys.gettrace(), FunctionType | MethodType):
            # A debugger or tracer would otherwise see the line again, in another frame.
            return func(*args, **(kwargs or {}))
        code, line, names = frame.f_code, frame.f_lineno, frame.f_globals
        key = (id(code), line, id(names))
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = (_call_at(code.co_filename, line, names), code)
        return known[0](func, args, kwargs or {})

    def clear(self) -> None:
        """Clear the cache of lines."""
        self._calls.clear()


def _call_at(file: str, line: int, names: dict[str, Any]) -> _Call:
    code = _CALL.replace(co_filename=file, co_firstlineno=line, co_name=NAME, co_qualname=NAME)
    return cast("_Call", FunctionType(code, names))
