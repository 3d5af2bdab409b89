"""Functions of torch that a script has replaced by its own, which call them."""

import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import torch

HANDING_ON = torch.overrides.handle_torch_function.__code__

_OWN = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)


def handed_on(func: Callable[..., object], frame: FrameType) -> Callable[..., object]:
    """Return the function that passed itself to a mode.

    Args:
        func: The function that the mode got.
        frame: Frame that called the mode.
    """
    caller = frame.f_back
    if frame.f_code is not HANDING_ON or caller is None:
        return func
    code, given = caller.f_code, getattr(func, "__code__", None)
    if given is code or not isinstance(given, CodeType) or given.co_filename.startswith(_OWN):
        return func
    return func if code.co_freevars else _again(caller)


def _again(caller: FrameType) -> Callable[..., object]:
    """Return the function that runs in a frame, with its arguments there as defaults."""
    code, values = caller.f_code, caller.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    by_place, by_name = names[: code.co_argcount], names[code.co_argcount :]
    again = FunctionType(
        code, caller.f_globals, code.co_name, tuple(values.get(name) for name in by_place)
    )
    again.__kwdefaults__ = {name: values.get(name) for name in by_name}
    return again
