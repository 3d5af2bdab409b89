"""Gradients as they are without the scale that a gradient scaler has given the loss."""

import math
from dataclasses import replace

from gradscope.recording.records import GradientStat, Recording


def unscaled(recording: Recording, scale: float) -> Recording:
    """Return a look whose gradients are divided by the scale of its loss."""
    if scale == 1 or not math.isfinite(scale) or scale <= 0:
        return recording
    return replace(
        recording,
        parameter_stats=tuple(
            replace(stat, gradient=_divided(stat.gradient, scale))
            for stat in recording.parameter_stats
        ),
        tensor_stats=tuple(
            replace(stat, gradient=_divided(stat.gradient, scale))
            for stat in recording.tensor_stats
        ),
        input_stats=tuple(
            replace(stat, norm=None if stat.norm is None else stat.norm / scale)
            for stat in recording.input_stats
        ),
    )


def _divided(stat: GradientStat | None, scale: float) -> GradientStat | None:
    if stat is None:
        return None
    return replace(
        stat,
        norm=stat.norm / scale,
        absolute_maximum=None if stat.absolute_maximum is None else stat.absolute_maximum / scale,
        # Scales are powers of two, so that no magnitude changes its octave with another.
        lowest_exponent=(
            None if stat.lowest_exponent is None else stat.lowest_exponent - round(math.log2(scale))
        ),
    )
