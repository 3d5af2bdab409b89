"""Replaces functions of torch during recording, and restores them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from gradscope.capture.compiler import follow_original, skip_frame
from gradscope.capture.frames import uncounted

Function = Callable[..., Any]


class _Replaced(NamedTuple):
    owner: object
    name: str
    original: object
    ours: object


class Patches:
    """The replaced functions. Each replacement looks like its original.

    `inspect.signature`, pickling by name, `isinstance`, warnings and torch's compiler see no
    difference.
    """

    def __init__(self) -> None:
        self._replaced: list[_Replaced] = []

    def wrap(self, owner: object, name: str, make: Callable[[Function], Function]) -> None:
        """Replace a function, or a method of a class, by what `make` returns for it.

        A method's replacement must first check `is_traced`, and then only call the original: the
        compiler can substitute a function by another one, but not a method.
        """
        # `getattr` would unwrap static methods and bind class methods.
        original = vars(owner)[name]
        ours = functools.wraps(original)(uncounted(make(original)))
        if isinstance(owner, type):
            skip_frame(ours)
        else:
            follow_original(ours, original)
        setattr(owner, name, ours)
        self._replaced.append(_Replaced(owner, name, original, ours))

    def put(self, owner: object, name: str, function: object) -> None:
        """Replace another name of a function that was wrapped already."""
        self._replaced.append(_Replaced(owner, name, vars(owner)[name], function))
        setattr(owner, name, function)

    def restore(self) -> None:
        """Restore everything. Functions that other code has wrapped since are left alone."""
        while self._replaced:
            replaced = self._replaced.pop()
            if vars(replaced.owner).get(replaced.name) is replaced.ours:
                setattr(replaced.owner, replaced.name, replaced.original)
