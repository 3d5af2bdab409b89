"""Adds gradients as a training loop does, and finds the weights that give the whole batch's."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import AccumulationLaw

_ELEMENTS = 2**20
"""Number of elements kept of each gradient, over all parameters. A law holds for each element, so a
sample shows it."""

_FEWEST = 256
"""Minimum number of elements kept per parameter, if it has them."""

_TINY = 1e-6
"""Gradients below this share of the norm over all parameters are rounding errors, for example of a
bias before a normalization."""


@dataclass(frozen=True, slots=True)
class Products:
    """Scalar products between a sum of gradients and the whole batch's gradient."""

    of_sum: float
    of_whole: float
    mixed: float

    def __add__(self, other: "Products") -> "Products":
        return Products(
            self.of_sum + other.of_sum, self.of_whole + other.of_whole, self.mixed + other.mixed
        )

    @property
    def norm(self) -> float:
        """Norm of the whole batch's gradient."""
        return math.sqrt(self.of_whole)

    @property
    def scale(self) -> float:
        """Projection of the sum on the whole batch's gradient, relative to that."""
        return _over(self.mixed, self.of_whole)

    @property
    def cosine(self) -> float:
        """Cosine between the two."""
        return _over(self.mixed, math.sqrt(self.of_sum) * self.norm)

    def deviation(self, factor: float = 1.0) -> float:
        """Return the norm of the difference between `factor` times the sum and the whole."""
        # From the products, so that any factor can be tried without another pass.
        square = factor * factor * self.of_sum - 2 * factor * self.mixed + self.of_whole
        # Rounding may make the square of a difference of equal gradients negative.
        return _over(math.sqrt(max(square, 0.0)) if square == square else math.nan, self.norm)

    def is_tiny(self, total: "Products") -> bool:
        """Return whether both are rounding errors, given the products over all parameters."""
        return self.of_whole <= _TINY**2 * total.of_whole and (
            self.of_sum <= _TINY**2 * total.of_sum
        )


class GradientSums:
    """The sum of the gradients of parts of a batch.

    Sums use the gradients' own precision, as in training; everything else is in double precision.

    Args:
        whole: Gradients of the whole batch, by parameter.
    """

    def __init__(self, whole: Sequence[Tensor | None]) -> None:
        self._whole = whole
        self._sums: list[Tensor | None] = [None] * len(whole)
        self._chosen = _chosen_elements(whole)
        self._samples: list[list[Tensor]] = []

    def add(self, gradients: Sequence[Tensor | None]) -> bool:
        """Add a part's gradients; return whether they are finite."""
        self._samples.append(self._sample(gradients))
        for position, gradient in enumerate(gradients):
            known = self._sums[position]
            if gradient is not None:
                # Not in place, because the first gradient belongs to the caller.
                self._sums[position] = gradient if known is None else known + gradient
        return all(bool(torch.isfinite(_flat(one)).all()) for one in gradients if one is not None)

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return [part, element] of the parts' gradients, and [element] of the whole batch's."""
        parts = torch.stack([torch.cat(sample) for sample in self._samples])
        return parts, torch.cat(self._sample(self._whole))

    def products(self) -> dict[int, Products]:
        """Return the products of each parameter with a gradient."""
        return {
            position: _products(self._sums[position], whole)
            for position, whole in enumerate(self._whole)
            if whole is not None or self._sums[position] is not None
        }

    def remaining(self, weights: Sequence[float]) -> list[float]:
        """Return, by parameter, the remainder of the whole gradient after a weighted sum of parts.

        It is the norm of the difference over the norm of the whole batch's gradient.
        """
        left = []
        for position, whole in enumerate(self._sample(self._whole)):
            weighed = torch.zeros_like(whole)
            for weight, sample in zip(weights, self._samples, strict=True):
                weighed += weight * sample[position]
            left.append(_over(float((weighed - whole).norm()), float(whole.norm())))
        return left

    def _sample(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the sampled elements by parameter; zeros without a gradient."""
        found = []
        for chosen, gradient in zip(self._chosen, gradients, strict=True):
            if gradient is None:
                found.append(torch.zeros(len(chosen), dtype=torch.float64))
            else:
                found.append(_flat(gradient)[chosen.to(gradient.device)].double().cpu())
        return found


def _chosen_elements(whole: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the elements to keep by parameter, for long ones among the non-zero elements."""
    flat = [torch.zeros(0) if one is None else _flat(one) for one in whole]
    total = sum(one.numel() for one in flat)
    chosen = []
    for one in flat:
        most = max(_FEWEST, one.numel() * _ELEMENTS // max(total, 1))
        if one.numel() <= most:
            chosen.append(torch.arange(one.numel()))
        else:
            # Evenly spaced elements would miss the few non-zero ones of an embedding's gradient.
            positions = one.nonzero().flatten().cpu()
            chosen.append(positions[:: math.ceil(max(len(positions), 1) / most)])
    return chosen


def _products(total: Tensor | None, whole: Tensor | None) -> Products:
    given = whole if total is None else total
    assert given is not None
    nothing = torch.zeros_like(_flat(given))
    one = (nothing if total is None else _flat(total)).double()
    other = (nothing if whole is None else _flat(whole)).double()
    return Products(
        float(torch.dot(one, one)), float(torch.dot(other, other)), float(torch.dot(one, other))
    )


def _flat(gradient: Tensor) -> Tensor:
    """Flatten a gradient; a complex one into real and imaginary parts."""
    dense = gradient.detach()
    if dense.layout is not torch.strided:
        dense = dense.to_dense()
    return (torch.view_as_real(dense) if dense.is_complex() else dense).flatten()


def _over(part: float, whole: float) -> float:
    """Return a quotient; infinity or NaN if the divisor is zero."""
    if whole == 0.0:
        return math.nan if part == 0.0 or math.isnan(part) else math.inf
    return part / whole


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
        # The first in order is the simplest: remainders within rounding do not tell laws apart.
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
    # Normalised first: parts of very different lengths would make the matrix ill-conditioned.
    units = parts / lengths
    products, projections = units @ units.T, units @ whole
    # A pseudo-inverse, because gradients of equal parts make the matrix singular.
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
