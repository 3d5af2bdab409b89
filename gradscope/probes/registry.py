"""The probes of a model after a backward, in the order in which they run."""

from collections.abc import Callable

from gradscope.capture.step.assemble import Assembler
from gradscope.probes.attributes import probe_attributes
from gradscope.probes.context import ProbeContext
from gradscope.probes.equal_outputs import probe_equal_outputs
from gradscope.probes.forward.custom_functions import (
    probe_custom_functions,
    probe_withheld_gradients,
)
from gradscope.probes.forward.forward_values import probe_forward
from gradscope.probes.forward.nonfinite_origins import probe_nonfinite
from gradscope.probes.forward_calls import probe_checkpoints, probe_comparisons, probe_derivatives
from gradscope.probes.horizons import probe_horizons
from gradscope.probes.influence import (
    probe_dropped,
    probe_ignored_inputs,
    probe_influence,
    probe_redraws,
)
from gradscope.probes.leaves import probe_leaves
from gradscope.probes.left_out_terms import probe_left_out_terms
from gradscope.probes.loss_terms import probe_loss_terms
from gradscope.probes.micro_batches.agreement import probe_micro_batches
from gradscope.probes.micro_batches.batch_division import probe_batch
from gradscope.probes.mixed_examples import probe_mixed_examples
from gradscope.probes.optimizer_steps import probe_overfit
from gradscope.probes.optimizers import probe_optimizers
from gradscope.probes.parameter_history import probe_freezes, probe_initialisations
from gradscope.probes.path_cuts import probe_path_cuts
from gradscope.probes.scaled_backward import probe_half_precision
from gradscope.probes.twins import probe_symmetry, probe_twins
from gradscope.progress import tell_stage
from gradscope.recording.evidence.batches import ProbeName, ProbeRecord

Probe = Callable[[ProbeContext], str | None]
"""Adds its records to the context's assembler; returns why it did not run, None if it did."""

PROBES: tuple[tuple[ProbeName, Probe], ...] = (
    ("attributes", probe_attributes),
    ("batch", probe_batch),
    ("checkpoints", probe_checkpoints),
    ("comparisons", probe_comparisons),
    ("custom functions", probe_custom_functions),
    ("derivatives", probe_derivatives),
    ("dropped", probe_dropped),
    ("forward", probe_forward),
    ("freezes", probe_freezes),
    ("half precision", probe_half_precision),
    ("horizons", probe_horizons),
    ("ignored inputs", probe_ignored_inputs),
    ("influence", probe_influence),
    ("initialisations", probe_initialisations),
    ("leaves", probe_leaves),
    ("left-out terms", probe_left_out_terms),
    ("loss terms", probe_loss_terms),
    ("micro-batches", probe_micro_batches),
    ("mixed examples", probe_mixed_examples),
    ("equal outputs", probe_equal_outputs),
    ("non-finite", probe_nonfinite),
    ("optimizers", probe_optimizers),
    ("overfit", probe_overfit),
    ("path cuts", probe_path_cuts),
    ("redraws", probe_redraws),
    ("symmetry", probe_symmetry),
    ("twins", probe_twins),
    ("withheld gradients", probe_withheld_gradients),
)
"""Name, as rules refer to it, and probe."""

OF_THE_MAKING = ("twins",)
"""Probes of the model's construction, which optimizer steps would blur."""


def probe_making(context: ProbeContext) -> None:
    """Run the probes that must come before any optimizer step."""
    _make(context, {name for name, _ in PROBES if name in OF_THE_MAKING})


def run_probes(context: ProbeContext, *, is_trained: bool) -> None:
    """Run every probe, and record which of them could not run.

    Args:
        context: A model right after the backward of the judged step.
        is_trained: Whether optimizer steps came before, and `probe_making` before them.
    """
    done = OF_THE_MAKING if is_trained else ()
    _make(context, {name for name, _ in PROBES if name not in done})


def _make(context: ProbeContext, wanted: set[str]) -> None:
    for name, make in PROBES:
        if name in wanted:
            tell_stage(f"probing the model: {name}")
            reason = make(context)
            context.assembler.note(ProbeRecord(name=name, skip_reason=reason))


def record_none(assembler: Assembler, reason: str) -> None:
    """Record that no probe ran, and why."""
    for name, _ in PROBES:
        assembler.note(ProbeRecord(name=name, skip_reason=reason))
