"""Norms of norms."""

import math
from collections.abc import Iterable


def total_norm(norms: Iterable[float]) -> float | None:
    """Return the root of the sum of squares; None where there is nothing to sum.

    NaN when one of them is, as torch's own total norm; squares do not overflow.
    """
    known = tuple(norms)
    if not known:
        return None
    if any(map(math.isnan, known)):
        return math.nan
    return math.hypot(*known)


def norm_of_norms(norms: Iterable[float], norm_type: float = 2.0) -> float:
    """Return the norm of all gradients from the norm of each."""
    sizes = tuple(norms)
    if any(math.isnan(size) for size in sizes):
        return math.nan
    largest = max(sizes, default=0.0)
    if norm_type == 2:
        return math.hypot(*sizes)
    if math.isinf(norm_type) or math.isinf(largest) or not largest:
        return largest
    # In shares of the largest, so that no power overflows.
    powers = math.fsum((size / largest) ** norm_type for size in sizes)
    return float(largest * powers ** (1 / norm_type))
