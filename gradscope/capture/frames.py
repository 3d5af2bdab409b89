"""Frames of gradscope's between the script and torch, which warnings do not count."""

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

_MARK = " <importlib._bootstrap>"
"""Where the name of its file holds both words, Python takes a frame for one of its own imports."""


def uncounted(function: Function) -> Function:
    """Return a function after making its frames ones that warnings do not count.

    A warning with a `stacklevel` of 2 is of the line that called; it would be of a line of
    gradscope's where that stands between, with another text, another count and other filters.
    """
    assert isinstance(function, FunctionType)
    code = function.__code__
    function.__code__ = code.replace(co_filename=code.co_filename + _MARK)
    return function
