"""Sees what a forward wraps in `nn.Parameter`: a new leaf, cut off from what it was made of.

A parameter is made without a call that a function mode could see.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from gradscope.capture.compiled import is_traced
from gradscope.capture.cuts import CutTracker
from gradscope.capture.frames import uncounted


@contextmanager
def watch_parameters_made(cuts: CutTracker) -> Iterator[None]:
    """Tell of every tensor that is made a parameter while the block runs."""
    kept = vars(nn.Parameter)["__new__"]
    original = nn.Parameter.__new__

    @uncounted
    def noted(
        kind: type[nn.Parameter], data: Tensor | None = None, requires_grad: bool = True
    ) -> nn.Parameter:
        parameter = original(kind, data, requires_grad)
        if not is_traced() and isinstance(data, Tensor):
            cuts.see_wrapped(data, parameter, sys._getframe(1))
        return parameter

    nn.Parameter.__new__ = staticmethod(noted)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        if nn.Parameter.__new__ is noted:  # else somebody has replaced it since
            nn.Parameter.__new__ = kept  # type: ignore[method-assign]
