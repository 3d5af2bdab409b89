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
