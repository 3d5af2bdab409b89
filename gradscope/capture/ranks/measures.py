"""Measures what ranks compare, and finds the line that called a model."""

from types import FrameType

import torch
from torch import Tensor, nn

from gradscope.capture.source.lines import Line
from gradscope.capture.statistics import norms
from gradscope.capture.training.gradient_state import Entry

Squares = list[tuple[Entry, float | None]]
"""Parameters, and the sums of squares of their gradients or weights; None if unknown."""


def squares_of(entries: list[Entry], values: "list[Tensor | None]") -> Squares:
    """Return the sum of squares of a gradient or weight of each parameter."""
    with torch.no_grad():
        found = norms(values)
    squares = (None if norm is None else norm * norm for norm in found)
    return list(zip(entries, squares, strict=True))


def line_outside(frames: list[FrameType]) -> Line | None:
    """Return the innermost line of the script that is not in a method of a module."""
    for frame in frames:
        first = frame.f_code.co_varnames[:1]
        owner = frame.f_locals.get(first[0]) if first else None
        if not isinstance(owner, nn.Module):
            return Line(frame.f_code, frame.f_lineno)
    return None
