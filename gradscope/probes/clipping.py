"""Measures the effect of clipping methods on the gradients of a target's batches."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradscope.capture.arithmetic import BLOCK
from gradscope.capture.reading import NotReadable, elements, gradient_of
from gradscope.capture.statistics import norms
from gradscope.progress import tell_stage
from gradscope.recording.evidence.training import ClipMethod, ClipPass, ClippedGradient, ClipTrial
from gradscope.target.options import ClipOptions

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
    # The norm of the blocks' norms equals the norm of all elements.
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
        # Sizes suffice: clipping by value keeps every sign.
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
    # By `<`, as the paper's code does: a unit exactly at its limit is multiplied by 1 either way.
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


USUAL_RATIO = 0.01
"""Ratio of adaptive clipping: Brock et al. 2021 (arXiv 2102.06171), section 4."""

_CHOSEN_SHARE = 0.999
"""Share of the first batch's elements that lie below the chosen clip value."""


class ClipProbe:
    """Measures the gradients of the parameters, and clips those of the optimizer's steps.

    The gradients are those of gradscope's own backward passes; the original ones are restored at
    the end.

    Args:
        parameters: Parameters of the model.
        options: Clipping methods and limits.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], options: ClipOptions) -> None:
        self._parameters = parameters
        self._options = options
        self._value = options.value
        self._ratio = USUAL_RATIO if options.adaptive_ratio is None else options.adaptive_ratio
        self.asked = tuple(_asked(options))
        self._applied = next(iter(self.asked), None)
        self._passes: list[ClipPass] = []

    def measure(self, *, made: int, loss: float | None) -> None:
        """Measure the effect of clipping on the current gradients.

        Args:
            made: Number of optimizer steps made before.
            loss: The loss; None if backward started from a non-scalar.
        """
        tell_stage(f"measuring clipping by norm, value and weights: batch {len(self._passes) + 1}")
        held = [_gradient_of(parameter) for parameter in self._parameters]
        known = [gradient for gradient in held if gradient is not None]
        # Chosen from the first batch, so that all batches are clipped alike.
        if self._value is None:
            self._value = _typical_largest(known)
        value, kind = self._value, self._options.norm_type
        with torch.no_grad():
            found = iter(norms(known))
            total, reason = _torchs_norm(known, kind)
            self._passes.append(
                ClipPass(
                    made=made,
                    batch=len(self._passes),
                    loss=loss,
                    norms=tuple(None if one is None else next(found) for one in held),
                    powers=()
                    if kind == 2
                    else tuple(None if one is None else power_norm(one, kind) for one in held),
                    torchs_norm=total,
                    failure=reason,
                    by_value=gathered(
                        [None if one is None else clipped_by_value(one, value) for one in held]
                    ),
                    adaptive=gathered(
                        [
                            None if one is None else clipped_by_weights(one, weight, self._ratio)
                            for one, weight in zip(held, self._parameters, strict=True)
                        ]
                    ),
                )
            )

    def clip(self) -> None:
        """Clip the gradients for the next step, by the first requested method."""
        if self._applied is None or not self._passes:
            return
        with torch.no_grad():
            for parameter, factor in zip(self._parameters, self._factors(), strict=True):
                gradient = gradient_of(parameter)
                if gradient is None:
                    continue
                if self._applied == "value":
                    _clamp(gradient, self._options.value or 0.0)
                elif self._applied == "adaptive":
                    _scale_units(parameter, self._ratio)
                else:
                    gradient.mul_(factor)

    def _factors(self) -> Iterator[float]:
        """Yield each parameter's factor, if one factor applies to its whole gradient."""
        last, limit = self._passes[-1], self._options.max_norm or 0.0
        sizes = [size or 0.0 for size in last.powers or last.norms]
        if self._applied == "per-tensor":
            yield from (coefficient(limit, size) for size in sizes)
            return
        total = last.torchs_norm
        if total is None:
            total = power_norm(torch.tensor(sizes, dtype=torch.float64), self._options.norm_type)
        for _ in sizes:
            yield coefficient(limit, total)

    def records(self, steps: int) -> Iterator[ClipTrial | ClipPass]:
        """Yield the settings and results of the measurements; nothing without measurements.

        Args:
            steps: Number of requested optimizer steps.
        """
        if not self._passes:
            return
        yield ClipTrial(
            max_norm=self._options.max_norm,
            norm_type=self._options.norm_type,
            value=math.nan if self._value is None else self._value,
            adaptive_ratio=self._ratio,
            asked=self.asked,
            applied=self._applied if steps else None,
            steps=steps,
            batches=self._options.batches,
        )
        yield from self._passes


def coefficient(limit: float, norm: float) -> float:
    """Return torch's clip coefficient for gradients of a norm."""
    # torch adds the same constant. min() would hide NaN, with which torch makes all gradients NaN.
    factor = limit / (norm + 1e-6)
    return factor if math.isnan(factor) else min(factor, 1.0)


def _asked(options: ClipOptions) -> Iterator[ClipMethod]:
    if options.per_tensor:
        yield "per-tensor"
    elif options.max_norm is not None:
        yield "norm"
    if options.value is not None:
        yield "value"
    if options.adaptive_ratio is not None:
        yield "adaptive"


def _gradient_of(parameter: nn.Parameter) -> Tensor | None:
    gradient = gradient_of(parameter)
    return None if gradient is None or not gradient.numel() else gradient.detach()


def _torchs_norm(gradients: list[Tensor], norm_type: float) -> tuple[float | None, str]:
    """Return the result of torch's function, and why it fails."""
    try:
        return float(torch.nn.utils.get_total_norm(gradients, norm_type)), ""
    except (RuntimeError, NotImplementedError, TypeError) as error:
        layouts = {str(one.layout) for one in gradients if one.layout is not torch.strided}
        if layouts:
            return None, "torch's functions cannot clip sparse gradients"
        return None, str(error).partition("\n")[0]


def _typical_largest(gradients: list[Tensor]) -> float:
    """Return a limit above nearly all elements, rounded to two digits."""
    samples = []
    for gradient in gradients:
        try:
            values = elements(gradient).values.reshape(-1)
        except NotReadable:
            continue
        # A strided sample, because quantiles need a sort.
        samples.append(values[:: max(values.numel() // BLOCK, 1)].to("cpu", torch.float64).abs())
    sizes = torch.cat(samples) if samples else torch.zeros(1, dtype=torch.float64)
    finite = sizes[sizes.isfinite()].sort().values
    if not finite.numel():
        return 1.0
    found = float(finite[min(int(_CHOSEN_SHARE * finite.numel()), finite.numel() - 1)])
    return float(f"{found:.1e}") or 1.0


def _clamp(gradient: Tensor, value: float) -> None:
    # torch has no clamp_ for sparse tensors; uncoalesced ones have elements in parts.
    if gradient.layout is torch.sparse_coo:
        gradient.copy_(_coalesced_clamp(gradient, value))
    else:
        gradient.clamp_(-value, value)


def _coalesced_clamp(gradient: Tensor, value: float) -> Tensor:
    whole = gradient.coalesce()
    values = whole.values().clamp(-value, value)
    return _with_values(whole, values)


def _with_values(whole: Tensor, values: Tensor) -> Tensor:
    """Return a coalesced sparse tensor with other values at the same indices."""
    return torch.sparse_coo_tensor(
        whole.indices(), values, whole.shape, is_coalesced=True, check_invariants=False
    )


def _scale_units(parameter: nn.Parameter, ratio: float) -> None:
    gradient = parameter.grad
    assert gradient is not None
    try:
        factors, _ = unit_factors(gradient, parameter, ratio)
    except NotReadable:
        return
    if gradient.layout is torch.sparse_coo and gradient.sparse_dim() == 1 and parameter.dim() > 1:
        whole = gradient.coalesce()
        scaled = whole.values() * _as_column(factors, whole.values())
        gradient.copy_(_with_values(whole, scaled))
    elif gradient.layout is torch.strided:
        gradient.mul_(
            _as_column(factors, gradient)
            if parameter.dim() > 1
            else factors[0].to(gradient.device, gradient.dtype)
        )


def _as_column(factors: Tensor, like: Tensor) -> Tensor:
    return factors.to(like.device, like.dtype).view(-1, *(1 for _ in like.shape[1:]))
