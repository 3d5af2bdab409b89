"""The arithmetic of clipping: norms, coefficients, and what each method makes of the gradients."""

import math
from collections.abc import Sequence

from gradscope.analysis.norms import norm_of_norms
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import (
    ClipMethod,
    ClipPass,
    ClippedGradient,
    ClipTrial,
)

EPSILON = 1e-6
"""Number that torch adds to a norm before it divides by it."""


def coefficient(limit: float, norm: float) -> float:
    """Return the factor of `clip_grad_norm_` for gradients of a norm; NaN for NaN."""
    factor = limit / (norm + EPSILON)
    # What `min` makes of a NaN depends on the order of its arguments.
    return factor if math.isnan(factor) else min(factor, 1.0)


def scaled_cosine(norms: Sequence[float], factors: Sequence[float]) -> float | None:
    """Return the cosine between gradients and the same gradients, each scaled by its own factor.

    None where one of the two is nothing, or not finite.
    """
    before = math.hypot(*norms)
    after = math.hypot(*(norm * factor for norm, factor in zip(norms, factors, strict=True)))
    if not (0 < before < math.inf and 0 < after < math.inf):
        return None
    # Dividing by the largest keeps squares from overflowing.
    product = math.fsum(
        (norm / before) * (norm * factor / after)
        for norm, factor in zip(norms, factors, strict=True)
    )
    # Rounding may exceed 1, and no angle has such a cosine.
    return min(product, 1.0)


def product_cosine(before: float, after: float, product: float) -> float | None:
    """Return the cosine from norms and inner product; None if it is undefined."""
    if not (0 < before < math.inf and 0 < after < math.inf) or not math.isfinite(product):
        return None
    # Two divisions: the product of two large norms overflows.
    return min(product / before / after, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What clipping leaves of the gradients of one backward."""

    norm: float
    """Euclidean norm of all gradients afterwards."""
    coefficient: float
    """Norm afterwards over the norm before, at most 1; the factor of a clip by the global norm."""
    cosine: float | None
    """Cosine between all gradients before and after; None if either is zero or not finite."""
    norms: tuple[float | None, ...]
    """Norm of each parameter's gradient after the clip; None if it has none."""
    is_cut: bool
    """Whether the clip changed anything."""


def norm_of(one: ClipPass, trial: ClipTrial) -> float:
    """Return the norm of all gradients, of the type that was asked for."""
    sizes = one.powers or one.norms
    return norm_of_norms((size for size in sizes if size is not None), trial.norm_type)


def torchs_norm_of(one: ClipPass, trial: ClipTrial) -> float:
    """Return the norm that `clip_grad_norm_` divides by."""
    return norm_of(one, trial) if one.torchs_norm is None else one.torchs_norm


def outcome(
    method: ClipMethod, one: ClipPass, trial: ClipTrial, limit: float | None = None
) -> Outcome:
    """Return the effect of a method.

    Args:
        method: The method.
        one: The gradients.
        trial: How they were measured.
        limit: The largest norm; by default that of the trial.
    """
    largest = trial.max_norm if limit is None else limit
    if method == "value":
        return _measured(one.by_value, one)
    if method == "adaptive":
        return _measured(one.adaptive, one)
    assert largest is not None
    if method == "norm":
        # The factor is torch's own, with the rounding of a sum in half precision.
        factor = coefficient(largest, torchs_norm_of(one, trial))
        return _scaled(one, [factor] * len(one.norms), factor)
    sizes = one.powers or one.norms
    factors = [math.nan if size is None else coefficient(largest, size) for size in sizes]
    return _scaled(one, factors, None)


def _scaled(one: ClipPass, factors: list[float], whole: float | None) -> Outcome:
    """Return the result of scaling each gradient by a factor, or all by one."""
    pairs = [(n, f) for n, f in zip(one.norms, factors, strict=True) if n is not None]
    before = norm_of_norms(norm for norm, _ in pairs)
    after = norm_of_norms(norm * factor for norm, factor in pairs)
    cosine = scaled_cosine([norm for norm, _ in pairs], [factor for _, factor in pairs])
    return Outcome(
        norm=after,
        coefficient=_share(after, before) if whole is None else whole,
        # One factor for all gradients keeps their direction; the quotient would show rounding.
        cosine=cosine if whole is None or cosine is None else 1.0,
        norms=tuple(
            None if norm is None else norm * factor
            for norm, factor in zip(one.norms, factors, strict=True)
        ),
        # `factor < 1` would call a NaN, which spoils every gradient, unchanged.
        is_cut=any(not factor >= 1 for _, factor in pairs),
    )


def _measured(left: ClippedGradient, one: ClipPass) -> Outcome:
    before = norm_of_norms(norm for norm in one.norms if norm is not None)
    after = norm_of_norms(norm for norm in left.norms if norm is not None)
    product = math.fsum(product for product in left.products if product is not None)
    return Outcome(
        norm=after,
        coefficient=_share(after, before),
        cosine=product_cosine(before, after, product),
        norms=left.norms,
        is_cut=bool(left.cut),
    )


def _share(after: float, before: float) -> float:
    return min(after / before, 1.0) if before else 1.0
