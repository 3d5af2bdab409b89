"""Compares tensors that ranks reduce with the gradients of parameters."""

import math
from collections.abc import Iterable

from torch import Tensor

from gradscope.capture.statistics import norms

_SAME = 1e-3
"""Relative difference up to which norms count as equal."""


def holds_all(given: Tensor, output: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Return whether a tensor that ranks scatter holds all gradients.

    Args:
        given: What a rank gives.
        output: The slice that it gets.
        parameters: The parameters.
    """
    held = (one.grad for one in parameters)
    present = [one for one in held if one is not None and one is not output]
    whole, *parts = norms([given, *present])
    known = [(one.numel(), part) for one, part in zip(present, parts, strict=True)]
    # The gradient of what holds a slice of the weights may still be the slice of the last step.
    for rows in (known, [row for row in known if row[0] != output.numel()]):
        found = [part for _, part in rows if part is not None]
        if whole and len(found) == len(rows) and _is_near(math.hypot(*found), whole):
            return True
    return False


def share_of(held: Iterable[Tensor], reduced: set[int]) -> float:
    """Return which share of the parameters with a gradient, 0 to 1, the script has reduced."""
    present = [id(parameter) for parameter in held if parameter.grad is not None]
    return sum(one in reduced for one in present) / max(len(present), 1)


def norm_now(held: Iterable[Tensor], owner: int) -> float | None:
    """Return the norm of a parameter's gradient, or of all that have so many elements together."""
    present = [(parameter, parameter.grad) for parameter in held if parameter.grad is not None]
    own = [gradient for parameter, gradient in present if id(parameter) == owner]
    if not own and sum(gradient.numel() for _, gradient in present) == owner:
        own = [gradient for _, gradient in present]
    found = [norm for norm in norms(own) if norm is not None]
    return math.hypot(*found) if found else None


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * abs(other)
