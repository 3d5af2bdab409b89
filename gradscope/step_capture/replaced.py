"""Functions of torch's that stand in for others, and calls that warn as if from another line.

A warning belongs to the line that called. A mode in between would take it to itself, and Python
would show it once in place of once for each line.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, cast

import torch

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


HANDING_ON = torch.overrides.handle_torch_function.__code__

_OWN = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)


def handed_on(func: Callable[..., object], frame: FrameType) -> Callable[..., object]:
    """Return the function that has handed itself on to a mode.

    Args:
        func: What the mode was given.
        frame: That has called the mode.
    """
    caller = frame.f_back
    if frame.f_code is not HANDING_ON or caller is None:
        return func
    code, given = caller.f_code, getattr(func, "__code__", None)
    if given is code or not isinstance(given, CodeType) or given.co_filename.startswith(_OWN):
        return func
    return func if code.co_freevars else _again(caller)


def _again(caller: FrameType) -> Callable[..., object]:
    """Return the function that runs in a frame, with what it was given there as its defaults."""
    code, values = caller.f_code, caller.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    by_place, by_name = names[: code.co_argcount], names[code.co_argcount :]
    again = FunctionType(
        code, caller.f_globals, code.co_name, tuple(values.get(name) for name in by_place)
    )
    again.__kwdefaults__ = {name: values.get(name) for name in by_name}
    return again
