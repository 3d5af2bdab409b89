"""The examinations of a model after a backward, in the order in which they are made."""

from collections.abc import Callable

from gradscope.capture.step.assemble import Assembler
from gradscope.probes.attributes import examine_attributes
from gradscope.probes.batch_division import examine_batch
from gradscope.probes.comparisons import examine_comparisons
from gradscope.probes.context import ProbeContext
from gradscope.probes.custom_functions import examine_custom_functions
from gradscope.probes.forward_values import examine_forward
from gradscope.probes.freezes import examine_freezes
from gradscope.probes.horizons import examine_horizons
from gradscope.probes.influence import examine_dropped, examine_influence
from gradscope.probes.initialisations import examine_initialisations
from gradscope.probes.leaves import examine_leaves
from gradscope.probes.loss_terms import examine_loss_terms
from gradscope.probes.micro_batches import examine_micro_batches
from gradscope.probes.nonfinite_origins import examine_nonfinite
from gradscope.probes.optimizers import examine_optimizers
from gradscope.probes.redraws import examine_redraws
from gradscope.probes.scaled_backward import examine_half_precision
from gradscope.probes.twins import examine_symmetry, examine_twins
from gradscope.recording.evidence.batches import ProbeRecord

Examine = Callable[[ProbeContext], str | None]
"""Notes what it finds in the scene's assembler; returns why it could not be made, else None."""

EXAMINATIONS: tuple[tuple[str, Examine], ...] = (
    ("attributes", examine_attributes),
    ("batch", examine_batch),
    ("comparisons", examine_comparisons),
    ("custom functions", examine_custom_functions),
    ("dropped", examine_dropped),
    ("forward", examine_forward),
    ("freezes", examine_freezes),
    ("half precision", examine_half_precision),
    ("horizons", examine_horizons),
    ("influence", examine_influence),
    ("initialisations", examine_initialisations),
    ("leaves", examine_leaves),
    ("loss terms", examine_loss_terms),
    ("micro-batches", examine_micro_batches),
    ("non-finite", examine_nonfinite),
    ("optimizers", examine_optimizers),
    ("redraws", examine_redraws),
    ("symmetry", examine_symmetry),
    ("twins", examine_twins),
)
"""Name, as rules ask for it, and examination."""


OF_THE_MAKING = ("twins",)
"""Those that look at how the model was made, which optimizer steps blur."""


def examine_making(context: ProbeContext) -> None:
    """Make the examinations that must come before any optimizer step."""
    _make(context, {name for name, _ in EXAMINATIONS if name in OF_THE_MAKING})


def examine(context: ProbeContext, *, is_trained: bool) -> None:
    """Make every examination, and note which of them could not be made.

    Args:
        context: A model right after the backward of the judged step.
        is_trained: Whether optimizer steps came before, and `examine_making` before them.
    """
    done = OF_THE_MAKING if is_trained else ()
    _make(context, {name for name, _ in EXAMINATIONS if name not in done})


def _make(context: ProbeContext, wanted: set[str]) -> None:
    for name, make in EXAMINATIONS:
        if name in wanted:
            obstacle = make(context)
            context.assembler.note(ProbeRecord(name=name, obstacle=obstacle))


def make_none(assembler: Assembler, reason: str) -> None:
    """Note that no examination was made, and why."""
    for name, _ in EXAMINATIONS:
        assembler.note(ProbeRecord(name=name, obstacle=reason))
