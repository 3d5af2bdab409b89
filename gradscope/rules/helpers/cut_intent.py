"""Whether a cut looks like a mistake or like what its author wanted."""

from typing import NamedTuple

from gradscope.analysis.reach import Reach, Stop
from gradscope.recording.finding import Severity


class Intent(NamedTuple):
    """How bad a cut is, and what it looks like where it may be meant."""

    severity: Severity
    looks_like: str | None


def intent(reach: Reach, stop: Stop) -> Intent:
    """Return how bad a cut is that keeps parameters from learning."""
    if not reach.learning:
        return Intent("error", None)
    if not reach.is_certain(stop):
        return Intent("warning", None)
    held = reach.is_held(stop.parameters)
    if reach.is_target(stop):
        if stop.bypassed:
            return Intent("note", "like the straight-through estimator of a codebook")
        return Intent("warning" if held else "note", "like a target of the loss")
    without_grad = stop.runs_without_grad and not reach.draws(stop)
    if stop.is_whole and without_grad and reach.is_twin(stop):
        return Intent("note", "like a copy of a module that learns")
    if stop.is_whole and (held is False or reach.is_in_eval_mode(stop)):
        return Intent("note", "frozen on purpose")
    if not stop.is_whole:
        return Intent("warning" if held is False else "error", None)
    return _of_whole_modules(reach, stop, held=held is True, without_grad=without_grad)


def _of_whole_modules(reach: Reach, stop: Stop, *, held: bool, without_grad: bool) -> Intent:
    # To leave a backbone as it is, one detaches it; for that nobody chooses by it or copies it.
    chooses = stop.cut.kind == "non-differentiable" or reach.draws(stop)
    is_accident = chooses or stop.is_copy or stop.is_checkpoint
    if reach.learns_only_head(stop) and not is_accident:
        # In a run, no other batch and no other loss brings it a gradient either: it is meant.
        is_meant = without_grad and reach.indexed.run is not None
        return Intent("note" if is_meant else "warning", "like a frozen backbone under a head")
    if held:
        return Intent("error", None)
    outside = not reach.is_in_model(stop.cut.call)
    if without_grad:
        return Intent("note" if outside else "warning", "frozen on purpose")
    if outside and stop.cut.kind == "detach" and not reach.is_used_late(stop):
        return Intent("warning", "like parts that are trained by their own losses")
    return Intent("error", None)
