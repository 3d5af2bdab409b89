"""What clipping makes of norms, as torch's functions compute it."""

import math
from collections.abc import Iterable, Sequence

EPSILON = 1e-6
"""That torch adds to a norm before it divides by it."""


def coefficient(limit: float, norm: float) -> float:
    """Return by what `clip_grad_norm_` multiplies gradients of a norm; NaN where that is NaN."""
    factor = limit / (norm + EPSILON)
    return factor if math.isnan(factor) else min(factor, 1.0)


def total_norm(norms: Iterable[float], norm_type: float = 2.0) -> float:
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


def scaled_cosine(norms: Sequence[float], factors: Sequence[float]) -> float | None:
    """Return the cosine between gradients and the same, each multiplied by a factor of its own.

    None where one of the two is nothing, or not finite.
    """
    before = math.hypot(*norms)
    after = math.hypot(*(norm * factor for norm, factor in zip(norms, factors, strict=True)))
    if not (0 < before < math.inf and 0 < after < math.inf):
        return None
    # In shares of the largest, so that no square overflows.
    product = math.fsum(
        (norm / before) * (norm * factor / after)
        for norm, factor in zip(norms, factors, strict=True)
    )
    return min(product, 1.0)


def product_cosine(before: float, after: float, product: float) -> float | None:
    """Return the cosine from norms and inner product; None where it is not to be had."""
    if not (0 < before < math.inf and 0 < after < math.inf) or not math.isfinite(product):
        return None
    return min(product / before / after, 1.0)
