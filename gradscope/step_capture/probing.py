"""Probes of a script's own backward: those that need no rerun."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gradscope.capture.source.lines import created
from gradscope.probes.attributes import probe_attributes
from gradscope.probes.checkpoints import probe_checkpoints
from gradscope.probes.comparisons import probe_comparisons
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.forward_values import note_forward
from gradscope.probes.forward.nonfinite_origins import note_origins
from gradscope.probes.freezes import probe_freezes
from gradscope.probes.ignored_inputs import probe_ignored_inputs
from gradscope.probes.influence import probe_dropped
from gradscope.probes.initialisations import probe_initialisations
from gradscope.probes.leaves import probe_leaves
from gradscope.probes.optimizers import probe_optimizers
from gradscope.probes.path_cuts import probe_path_cuts
from gradscope.probes.registry import PROBES
from gradscope.probes.twins import probe_symmetry, probe_twins
from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.repeated_captures import NOT_IN_EVERY_STEP
from gradscope.step_capture.forward_watch import ForwardWatch
from gradscope.step_capture.half_precision import HalfPrecision

NOT_RUN_AGAIN = "a script's forward is not repeated"

_WITHOUT_RERUN: dict[str, Callable[[ProbeContext], str | None]] = {
    "attributes": probe_attributes,
    "checkpoints": probe_checkpoints,
    "comparisons": probe_comparisons,
    "dropped": probe_dropped,
    "freezes": probe_freezes,
    "ignored inputs": probe_ignored_inputs,
    "initialisations": probe_initialisations,
    "leaves": probe_leaves,
    "optimizers": probe_optimizers,
    "path cuts": probe_path_cuts,
    "symmetry": probe_symmetry,
    "twins": probe_twins,
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
        note(ProbeRecord(name=name, obstacle=skip_reason))


def _locations(context: ProbeContext) -> dict[int, int]:
    """Return the positions of the nodes' records, by sequence number."""
    numbers = ((created(node), index) for index, node in enumerate(context.capture.graph.nodes))
    first = context.position.first_node
    return {number: first + index for number, index in numbers if number is not None}


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
