"""Measures the effect of clipping on the gradients of a target's batches."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from gradscope.capture.arithmetic import BLOCK
from gradscope.capture.reading import NotReadable, elements
from gradscope.capture.statistics import norms
from gradscope.probes.clip_methods import (
    clipped_by_value,
    clipped_by_weights,
    gathered,
    power_norm,
    unit_factors,
)
from gradscope.recording.evidence.clipping import ClipMethod, ClipPass, ClipTrial
from gradscope.target.options import ClipOptions

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
        held = [_gradient_of(parameter) for parameter in self._parameters]
        known = [gradient for gradient in held if gradient is not None]
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
                    obstacle=reason,
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
                if parameter.grad is None:
                    continue
                if self._applied == "value":
                    _clamp(parameter.grad, self._options.value or 0.0)
                elif self._applied == "adaptive":
                    _scale_units(parameter, self._ratio)
                else:
                    parameter.grad.mul_(factor)

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
    gradient = parameter.grad
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
        samples.append(values[:: max(values.numel() // BLOCK, 1)].to("cpu", torch.float64).abs())
    sizes = torch.cat(samples) if samples else torch.zeros(1, dtype=torch.float64)
    finite = sizes[sizes.isfinite()].sort().values
    if not finite.numel():
        return 1.0
    found = float(finite[min(int(_CHOSEN_SHARE * finite.numel()), finite.numel() - 1)])
    return float(f"{found:.1e}") or 1.0


def _clamp(gradient: Tensor, value: float) -> None:
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
