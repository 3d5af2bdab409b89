"""Checks whether half precision underflows gradients, and divides out the loss scale."""

import math
from dataclasses import replace

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from gradscope.capture.reading import is_plain
from gradscope.capture.shards import is_flat
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.probes.context import ProbeContext
from gradscope.probes.scaled_backward import (
    AutocastLines,
    Scaled,
    narrowest,
    note_flushed,
    scaled_gradients,
)
from gradscope.recording.records import GradientStat, Recording


def unscaled(recording: Recording, scale: float) -> Recording:
    """Return a captured step whose gradients are divided by its loss scale."""
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
        # Scales are powers of two, so all magnitudes move by the same number of octaves.
        lowest_exponent=(
            None if stat.lowest_exponent is None else stat.lowest_exponent - round(math.log2(scale))
        ),
    )


_WIDE_RANGE = "bfloat16"
"""Has the range of float32: it underflows only where float32 does."""

_MOST_ELEMENTS = 20_000_000
"""Maximum number of elements of all parameters: the gradients exist twice for a moment."""


class HalfPrecision:
    """Runs the backward of a captured step from a larger loss, before the script runs it.

    It leaves no trace: gradients are returned, not accumulated; no hook or other code of the script
    is called, and no random number is drawn.
    """

    def __init__(self, lines: AutocastLines) -> None:
        self._lines = lines
        self._scaled: Scaled | None = None
        self._locations: list[int] = []
        self.skip_reason: str | None = None
        """Why it was not run; None also if nothing uses half precision."""

    def run(self, loss: Tensor, capture: StepCapture, *, is_scaled: bool, is_first: bool) -> None:
        """Run it, if half precision is used and nothing prevents it."""
        self._dtype = narrowest(capture.graph)
        if self._dtype is None:
            return
        nodes = capture.parameter_nodes()
        parameters = {location: capture.graph.leaves[node] for location, node in nodes.items()}
        self.skip_reason = self._why_not(
            capture, list(parameters.values()), is_scaled=is_scaled
        ) or (None if is_first else "only the first captured steps run backward twice")
        if self.skip_reason is None:
            self._locations = sorted(parameters)
            chosen = [parameters[location] for location in self._locations]
            scaled = scaled_gradients(loss, chosen)  # type: ignore[arg-type]
            if isinstance(scaled, str):
                self.skip_reason = scaled
            else:
                self._scaled = scaled

    def note(self, context: ProbeContext) -> None:
        """Record the lost gradients, after the script's own backward."""
        scaled, self._scaled = self._scaled, None
        if scaled is not None and self._dtype is not None:
            note_flushed(context, self._dtype, self._lines, scaled, self._locations)

    def _why_not(
        self, capture: StepCapture, parameters: list[Tensor], *, is_scaled: bool
    ) -> str | None:
        if is_scaled:
            return "a gradient scaler is used"
        if str(self._dtype).endswith(_WIDE_RANGE):
            return f"{_WIDE_RANGE} has the range of float32"
        if capture.shards or any(is_flat(one) or not is_plain(one) for one in parameters):
            return "parameters are sharded, or of a tensor subclass"
        if sum(parameter.numel() for parameter in parameters) > _MOST_ELEMENTS:
            return "the model is too large for a second backward"
        if any(parameter.grad is not None for parameter in parameters):
            return "gradients of several backward passes accumulate"
        graph = capture.graph
        if graph.hooked or any(isinstance(node, BackwardCFunction) for node in graph.nodes):
            return "backward runs code of the script's own"
        return None
