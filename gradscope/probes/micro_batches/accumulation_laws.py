"""Finds the weights with which gradients of micro-batches add up to the whole batch's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradscope.recording.evidence.batches import AccumulationLaw

FULL_TOLERANCE, LOW_TOLERANCE = 1e-3, 2e-2
"""Maximum rounding error, relative to the norm of the whole batch's gradient, in single and in half
precision. Measured: sums that are equal in exact arithmetic differ by less than 4e-7, in bfloat16
by up to 5e-3."""

_SAME = 1e-5
"""Laws with a smaller remainder count as equally good: the simplest of them is used."""

_PER_WEIGHT = 4
"""Number of gradient elements per weight that a fit requires."""


@dataclass(frozen=True, slots=True)
class Count:
    """Amounts of one quantity in each micro-batch, such as examples or tokens."""

    unit: str
    amounts: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Weights, and the remainder of the whole batch's gradient."""

    name: AccumulationLaw
    weights: tuple[float, ...]
    remaining: float
    """Norm of the remainder over the norm of the whole batch's gradient."""
    count: Count | None = None
    """The count that gives the weights, if `name` is `counted`."""


def find_law(
    parts: Tensor,
    whole: Tensor,
    counts: Sequence[Count],
    losses: tuple[Sequence[float], float],
    tolerance: float,
) -> Law:
    """Return the simplest law that holds; if none does, the best weights.

    Args:
        parts: [micro-batch, element] gradients in double precision.
        whole: [element] gradient of the whole batch.
        counts: Possible units of the loss's mean, the likeliest first.
        losses: Losses of the micro-batches and of the whole batch, which a fit must explain too.
        tolerance: Maximum remainder of a law.
    """
    number = len(parts)
    known = [
        _law("equal", (1.0,) * number, parts, whole),
        _law("mean", (1 / number,) * number, parts, whole),
        *(_counted(count, parts, whole) for count in counts if sum(count.amounts) > 0),
    ]
    least = min(law.remaining for law in known)
    if least <= tolerance:
        return next(law for law in known if law.remaining <= max(10 * least, _SAME))
    fitted = _law("fitted", _fit(parts, whole), parts, whole)
    if fitted.remaining <= tolerance and _is_telling(fitted, parts, losses, tolerance):
        return fitted
    return Law(name="none", weights=fitted.weights, remaining=fitted.remaining)


def _counted(count: Count, parts: Tensor, whole: Tensor) -> Law:
    total = sum(count.amounts)
    return _law("counted", tuple(one / total for one in count.amounts), parts, whole, count)


def _law(
    name: AccumulationLaw,
    weights: tuple[float, ...],
    parts: Tensor,
    whole: Tensor,
    count: Count | None = None,
) -> Law:
    left = torch.tensor(weights, dtype=parts.dtype, device=parts.device) @ parts - whole
    return Law(name=name, weights=weights, remaining=float(left.norm() / whole.norm()), count=count)


def _fit(parts: Tensor, whole: Tensor) -> tuple[float, ...]:
    """Return the least-squares weights, from the matrix of the gradients' products."""
    lengths = parts.norm(dim=1, keepdim=True).clamp_min(torch.finfo(parts.dtype).tiny)
    units = parts / lengths
    products, projections = units @ units.T, units @ whole
    solved = torch.linalg.pinv(products, rtol=1e-10, hermitian=True) @ projections
    return tuple((solved / lengths.squeeze(1)).tolist())


def _is_telling(
    law: Law, parts: Tensor, losses: tuple[Sequence[float], float], tolerance: float
) -> bool:
    """Return whether a fit could have failed, and explains the loss as well as its gradient."""
    of_parts, of_whole = losses
    explained = sum(weight * loss for weight, loss in zip(law.weights, of_parts, strict=True))
    elements = int((parts != 0).any(dim=0).sum())
    return (
        elements >= _PER_WEIGHT * len(parts)
        and min(law.weights) > 0
        and abs(explained - of_whole) <= 10 * tolerance * abs(of_whole)
    )
