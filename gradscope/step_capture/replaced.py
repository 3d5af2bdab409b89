"""Functions of torch's in whose place a script has put its own, which call them."""

import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import torch

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
