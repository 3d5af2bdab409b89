"""Probes of a script's own backward that need no rerun, half precision among them."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from gradscope.capture.naming import is_flat
from gradscope.capture.reading import gradient_of, is_plain
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.probes.attributes import probe_attributes
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.custom_functions import custom_functions, probe_withheld_gradients
from gradscope.probes.forward.forward_values import note_forward
from gradscope.probes.forward.nonfinite_origins import note_origins
from gradscope.probes.forward_calls import probe_checkpoints, probe_comparisons, probe_derivatives
from gradscope.probes.influence import probe_dropped, probe_ignored_inputs
from gradscope.probes.leaves import probe_leaves
from gradscope.probes.left_out_terms import probe_left_out_terms
from gradscope.probes.optimizers import probe_optimizers
from gradscope.probes.parameter_history import probe_freezes, probe_initialisations
from gradscope.probes.path_cuts import probe_path_cuts
from gradscope.probes.registry import PROBES
from gradscope.probes.scaled_backward import (
    AutocastLines,
    Scaled,
    narrowest,
    note_flushed,
    scaled_gradients,
)
from gradscope.probes.twins import probe_symmetry, probe_twins
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.records import GradientStat, Recording
from gradscope.recording.repetitions import NOT_IN_EVERY_STEP
from gradscope.step_capture.forward_watch import ForwardWatch


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
        # Released at once: these gradients are as large as the model.
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
        # The script's gradient would then be a sum, which the second backward is not.
        if any(gradient_of(parameter) is not None for parameter in parameters):
            return "gradients of several backward passes accumulate"
        graph = capture.graph
        if graph.hooked or any(isinstance(node, BackwardCFunction) for node in graph.nodes):
            return "backward runs code of the script's own"
        return None


NOT_RUN_AGAIN = "a script's forward is not repeated"


def _probe_functions(context: ProbeContext) -> str | None:
    return "they are checked after a script" if custom_functions(context.capture.graph) else None


_WITHOUT_RERUN: dict[str, Callable[[ProbeContext], str | None]] = {
    "attributes": probe_attributes,
    "checkpoints": probe_checkpoints,
    "comparisons": probe_comparisons,
    "custom functions": _probe_functions,
    "derivatives": probe_derivatives,
    "dropped": probe_dropped,
    "freezes": probe_freezes,
    "ignored inputs": probe_ignored_inputs,
    "initialisations": probe_initialisations,
    "leaves": probe_leaves,
    "left-out terms": probe_left_out_terms,
    "optimizers": probe_optimizers,
    "path cuts": probe_path_cuts,
    "symmetry": probe_symmetry,
    "twins": probe_twins,
    "withheld gradients": probe_withheld_gradients,
}

_OCCASIONAL = frozenset({"attributes", "forward", "ignored inputs", "symmetry", "twins"})
"""Probes that are run only in full captures: they read tensor elements, or are costly."""


def probe_captured_step(
    context: ProbeContext, values: ForwardWatch, loss: Tensor, half: HalfPrecision
) -> None:
    """Run the probes of a finished backward.

    Args:
        context: State after the backward.
        values: Observed values of the forward.
        loss: Tensor that it started from.
        half: Result of a larger loss.
    """
    note = context.assembler.note
    for name, _ in PROBES:
        if name in _OCCASIONAL and not values.measures:
            skip_reason: str | None = NOT_IN_EVERY_STEP
        elif name in _WITHOUT_RERUN:
            skip_reason = _WITHOUT_RERUN[name](context)
        elif name == "forward":
            skip_reason = _probe_forward(context, values)
        elif name == "non-finite":
            skip_reason = _probe_nonfinite(context, values, loss)
        elif name == "half precision":
            half.note(context)
            skip_reason = half.skip_reason
        else:
            skip_reason = NOT_RUN_AGAIN
        note(ProbeRecord(name=name, skip_reason=skip_reason))


def _locations(context: ProbeContext) -> dict[int, int]:
    """Return the positions of the nodes' records, by sequence number."""
    numbers, first = context.capture.graph.by_number(), context.position.first_node
    return {number: first + node for number, node in numbers.items()}


def _probe_forward(context: ProbeContext, values: ForwardWatch) -> str | None:
    note_forward(context, values.values, values.watches, _locations(context))
    return None


def _probe_nonfinite(context: ProbeContext, values: ForwardWatch, loss: Tensor) -> str | None:
    if not values.origins.origins:
        broken = any(stat.is_broken for stat in context.measured.numbers.values())
        loss_is_broken = context.loss is not None and not math.isfinite(context.loss)
        return "its origin was not observed" if broken or loss_is_broken else None
    with torch.no_grad():
        values.origins.ended(loss)
    note_origins(context, values.origins, _locations(context))
    return None
