"""Whether a cut looks like a mistake or like what its author wanted."""

from typing import NamedTuple

from gradscope.recording.finding import Severity
from gradscope.rules.reach import Reach, Stop


class Intent(NamedTuple):
    """How bad a cut is, and what it looks like where it may be meant."""

    severity: Severity
    looks_like: str | None


def intent(reach: Reach, stop: Stop) -> Intent:
    """Return how bad a cut is that keeps parameters from learning."""
    if not reach.learning:
        return Intent("error", None)
    held = reach.is_held(stop)
    if stop.cut.straight_through:
        return Intent("note", "a straight-through estimator")
    if reach.is_target(stop):
        return Intent("warning" if held else "note", "a target of the loss")
    without_grad = stop.cut.kind == "no-grad"
    if stop.is_whole and without_grad and reach.is_twin(stop):
        return Intent("note", "a copy of what learns")
    if stop.is_whole and (held is False or reach.is_in_eval_mode(stop)):
        return Intent("note", "frozen on purpose")
    if not stop.is_whole:
        return Intent("warning" if held is False else "error", None)
    return _of_whole_modules(reach, stop, held=held is True, without_grad=without_grad)


def _of_whole_modules(reach: Reach, stop: Stop, *, held: bool, without_grad: bool) -> Intent:
    if reach.learns_only_head(stop):
        return Intent("warning", "a frozen backbone under a head")
    if held:
        return Intent("error", None)
    if without_grad:
        return Intent("warning", "frozen on purpose")
    if stop.cut.kind == "detach" and not reach.is_in_model(stop.cut.call):
        return Intent("warning", "parts that are trained by losses of their own")
    return Intent("error", None)
