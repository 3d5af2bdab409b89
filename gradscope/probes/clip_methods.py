"""Computes the effect of clipping methods on gradients, without changing these.

Sums are computed in float64, by blocks. Results equal those of torch's functions on copies, except
for rounding.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradscope.capture.arithmetic import BLOCK
from gradscope.capture.reading import NotReadable, elements
from gradscope.recording.evidence.clipping import ClippedGradient

LEAST_WEIGHT_NORM = 1e-3
"""Minimum weight norm of a unit in adaptive clipping: weights that start at zero can grow."""
LEAST_GRADIENT_NORM = 1e-6
"""Minimum gradient norm of a unit in adaptive clipping: smaller ones are not divided by."""


@dataclass(slots=True)
class Left:
    """Result of clipping one gradient."""

    norm: float
    product: float
    """Inner product with the unclipped gradient."""
    cut: int
    of: int


def gathered(left: list[Left | None]) -> ClippedGradient:
    """Return the results for all parameters as a record."""
    known = [one for one in left if one is not None]
    return ClippedGradient(
        norms=tuple(None if one is None else one.norm for one in left),
        products=tuple(None if one is None else one.product for one in left),
        cut=sum(one.cut for one in known),
        of=sum(one.of for one in known),
    )


def power_norm(gradient: Tensor, norm_type: float) -> float:
    """Return the norm of a gradient of any type, NaN if it is unreadable."""
    try:
        values, repeats, _ = elements(gradient)
    except NotReadable:
        return math.nan
    if not values.numel():
        return 0.0
    if math.isinf(norm_type):
        return float(values.abs().max())
    found = [float(torch.linalg.vector_norm(block, norm_type)) for block in _blocks(values)]
    total = float(torch.linalg.vector_norm(torch.tensor(found, dtype=torch.float64), norm_type))
    return float(total * repeats ** (1 / norm_type))


def clipped_by_value(gradient: Tensor, value: float) -> Left:
    """Return the result of `clip_grad_value_`."""
    try:
        values, repeats, numel = elements(gradient)
    except NotReadable:
        return Left(math.nan, math.nan, 0, 0)
    # As in torch, the limit is rounded to the gradient's own dtype.
    limit = float(torch.tensor(value, dtype=values.dtype))
    square = product = 0.0
    cut = 0
    for block in _blocks(values):
        sizes = block.abs()
        kept = sizes.clamp(max=limit)
        square += float(torch.dot(kept, kept))
        product += float(torch.dot(sizes, kept))
        cut += int((sizes > limit).sum())
    return Left(math.sqrt(square * repeats), product * repeats, cut * repeats, numel)


def clipped_by_weights(gradient: Tensor, weight: Tensor, ratio: float) -> Left:
    """Return the result of adaptive clipping: at most `ratio` of its weights for each unit."""
    try:
        factors, norms = unit_factors(gradient, weight, ratio)
    except NotReadable:
        return Left(math.nan, math.nan, 0, 0)
    kept = factors * norms
    return Left(
        norm=float(torch.linalg.vector_norm(kept)),
        product=float(torch.dot(kept, norms)),
        cut=int((factors < 1).sum()),
        of=_units(weight),
    )


def unit_factors(gradient: Tensor, weight: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Return the factors of adaptive clipping for each unit's gradient, and the norms before.

    A unit is one row of a parameter with two or more dimensions; other parameters are units as a
    whole. A sparse gradient has the units of its stored rows.

    Raises:
        NotReadable: The elements cannot be read.
    """
    rows, weights = _rows(gradient, weight)
    norms = _row_norms(rows)
    limits = ratio * _row_norms(weights).clamp(min=LEAST_WEIGHT_NORM)
    factors = torch.where(norms < limits, 1.0, limits / norms.clamp(min=LEAST_GRADIENT_NORM))
    return factors, norms


def _rows(gradient: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    gradient, weight = gradient.detach(), weight.detach()
    if gradient.layout is torch.sparse_coo and gradient.sparse_dim() == 1 and weight.dim() > 1:
        whole = gradient.coalesce()
        return whole.values().flatten(1), weight[whole.indices()[0]].flatten(1)
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    if gradient.is_meta or gradient.is_nested or weight.layout is not torch.strided:
        raise NotReadable("its rows cannot be read")
    if weight.dim() > 1:
        return gradient.flatten(1), weight.flatten(1)
    return gradient.reshape(1, -1), weight.reshape(1, -1)


def _units(weight: Tensor) -> int:
    return weight.shape[0] if weight.dim() > 1 else 1


def _row_norms(rows: Tensor) -> Tensor:
    rows = _with_float64(rows)
    wide = torch.complex128 if rows.is_complex() else torch.float64
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=wide).to(torch.float64)
    return found


def _with_float64(tensor: Tensor) -> Tensor:
    """Return a tensor on a device with float64, which some accelerators do not support."""
    return tensor if tensor.device.type in ("cpu", "cuda") else tensor.cpu()


def _blocks(values: Tensor) -> Iterator[Tensor]:
    flat = _with_float64(values).reshape(-1)
    for start in range(0, flat.numel(), BLOCK):
        yield flat[start : start + BLOCK].to(torch.float64)
