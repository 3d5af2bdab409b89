"""Whether a cut looks like a mistake or like what its author wanted."""

from typing import NamedTuple

from gradscope.analysis.intent import Intent as Evidence
from gradscope.analysis.intent import is_named_fixed
from gradscope.analysis.reach import Reach, Stop
from gradscope.recording.finding import Severity

_COPY = "like a copy of a module that learns"
_FROZEN = "frozen on purpose"


class Intent(NamedTuple):
    """How bad a cut is, and what it looks like where it may be meant."""

    severity: Severity
    looks_like: str | None


def intent(reach: Reach, stop: Stop) -> Intent:
    """Return how bad a cut is that keeps parameters from learning."""
    if not (reach.learning and reach.is_certain(stop)):
        return Intent("warning" if reach.learning else "error", None)
    held = reach.is_held(stop.parameters)
    evidence = reach.indexed.shared(Evidence)
    if evidence.is_followed(stop.parameters):
        return Intent("note", "like a copy that follows what learns")
    if reach.is_target(stop):
        in_run = reach.indexed.run is not None
        return _of_target(stop, held=held is True, in_run=in_run)
    if reach.has_ceased(stop):
        return Intent("note" if _is_named(reach, stop) else "warning", "like a stage of training")
    if not stop.is_whole:
        return Intent("warning" if held is False else "error", None)
    without_grad = stop.runs_without_grad and not reach.draws(stop)
    if held is False or reach.is_in_eval_mode(stop):
        is_copy = without_grad and reach.is_twin(stop)
        return Intent("note", _COPY if is_copy else _FROZEN)
    if evidence.is_given_a_rate(stop.parameters):
        return Intent("error", None)
    return _of_whole_modules(reach, stop, held=held is True, without_grad=without_grad)


def _of_target(stop: Stop, *, held: bool, in_run: bool) -> Intent:
    if stop.bypassed and held and in_run:
        # In a run, no other loss and no running mean moves the codebook: it never learns.
        return Intent("error", None)
    if stop.bypassed:
        return Intent("note", "like the straight-through estimator of a codebook")
    return Intent("warning" if held else "note", "like a target of the loss")


def _of_whole_modules(reach: Reach, stop: Stop, *, held: bool, without_grad: bool) -> Intent:
    if without_grad and reach.is_twin(stop):
        return Intent("note", _COPY)
    # To leave a backbone as it is, one detaches it; for that nobody chooses by it or copies it.
    chooses = stop.cut.kind == "non-differentiable" or reach.draws(stop)
    is_accident = chooses or stop.is_copy or stop.is_checkpoint
    if reach.learns_only_head(stop) and not is_accident:
        # In a run, no other batch and no other loss brings it a gradient either: it is meant.
        is_meant = without_grad and reach.indexed.run is not None
        return Intent("note" if is_meant else "warning", "like a frozen backbone under a head")
    if held:
        # All of a model's parameters go into its optimizer without a thought; a name is one.
        is_meant = without_grad and _is_named(reach, stop)
        return Intent("note", _FROZEN) if is_meant else Intent("error", None)
    outside = not reach.is_in_model(stop.cut.call)
    if without_grad:
        return Intent("note" if outside else "warning", _FROZEN)
    if outside and stop.cut.kind == "detach" and not reach.is_used_late(stop):
        return Intent("warning", "like parts that are trained by their own losses")
    return Intent("error", None)


def _is_named(reach: Reach, stop: Stop) -> bool:
    """Return whether the module or the function under no_grad says that it is not to learn."""
    site = reach.indexed.site(stop.cut.site)
    function = None if site is None else site.function
    return is_named_fixed([function, *(part.name for part in stop.parts)])
