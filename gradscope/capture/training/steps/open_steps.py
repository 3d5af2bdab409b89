"""Running steps, and steps of several optimizers that are one step of the script.

An optimizer may step others, as `ZeroRedundancyOptimizer` and wrappers do. Hooks may make one step
per parameter while a backward runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType

from torch import Tensor

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.locations import Location
from gradscope.capture.training.optimizers import Known
from gradscope.capture.training.steps.rounding import Rounded, Sample
from gradscope.capture.training.steps.stored_gradients import StoredEntry
from gradscope.capture.training.steps.writer import Measured
from gradscope.recording.events import StepEvent, named

Copy = tuple[Entry, Tensor]
"""A parameter and its elements before a step."""

_COUNTS = (
    StepEvent.parameters.name,
    StepEvent.with_gradient.name,
    StepEvent.fresh.name,
    StepEvent.stale.name,
    StepEvent.none.name,
    StepEvent.clipped.name,
    StepEvent.written.name,
)


@dataclass(slots=True)
class OpenStep:
    """A running step."""

    known: Known
    location: Location
    has_closure: bool
    numbers: dict[str, Number]
    measured: list[Measured] | None
    before: list[Copy]
    """Copies of the parameters, if updates are measured."""
    samples: list[Sample] = field(default_factory=list)
    rounded: list[Rounded] = field(default_factory=list)
    kept: list[StoredEntry] = field(default_factory=list)
    parts: list["OpenStep"] = field(default_factory=list)
    """Steps of other optimizers within it so far, except those that change nothing."""
    others: list[Known] = field(default_factory=list)
    """Optimizers that have stepped within it, whether they changed something or not."""
    description: str = ""
    """The optimizer's class and learning rates."""
    frame: int = 0
    """`id` of the frame that it runs in."""
    code: CodeType | None = None
    """Code of that frame."""


def is_left(step: OpenStep, frame: FrameType) -> bool:
    """Return whether a step ended by an exception: it is not among the callers of a frame."""
    return not calls(step.frame, step.code, frame)


def calls(caller: int, code: CodeType | None, frame: FrameType) -> bool:
    """Return whether a frame (by `id`, and code) is among the callers of another."""
    outer = frame.f_back
    # The `id` alone may be that of a freed frame.
    while outer is not None and (id(outer) != caller or outer.f_code is not code):
        outer = outer.f_back
    return outer is not None


def parts_of(step: OpenStep) -> list[OpenStep]:
    """Return the steps that an optimizer's step consists of: its own, and nested ones.

    An optimizer that shares its parameters with nested ones does nothing by itself.
    """
    if not step.parts:
        return [step]
    moved = {id(entry) for one in step.parts for entry in one.known.entries}
    is_wrapper = not moved.isdisjoint(map(id, step.known.entries))
    if is_wrapper or not step.numbers.get("with_gradient"):
        return step.parts
    # Nested ones may hold float32 copies of its parameters, which no backward reaches.
    return [step, *(one for one in step.parts if one.numbers.get("backwards"))]


def joined(parts: Sequence[OpenStep], leader: Known) -> OpenStep:
    """Return several steps as one step of one optimizer."""
    parts = list({one.known.index: one for one in parts}.values())
    if len(parts) == 1 and parts[0].known is leader:
        return parts[0]
    measured = [one.measured for one in parts if one.measured is not None]
    return replace(
        parts[0],
        known=leader,
        numbers=_joined_numbers([one.numbers for one in parts]),
        measured=[record for records in measured for record in records] if measured else None,
        rounded=[record for one in parts for record in one.rounded],
        kept=[record for one in parts for record in one.kept],
        description=", ".join(dict.fromkeys(one.description for one in parts)),
    )


def _joined_numbers(parts: Sequence[dict[str, Number]]) -> dict[str, Number]:
    found = {name: sum(float(one.get(name, 0.0)) for one in parts) for name in _COUNTS}
    backwards = max(float(one.get(StepEvent.backwards.name, 0.0)) for one in parts)
    found |= named(StepEvent, backwards=backwards, manual=0.0)
    if norms := _of_parts(parts, StepEvent.norm.name):
        found |= named(StepEvent, norm=math.hypot(*norms))
    if nonfinite := _of_parts(parts, StepEvent.nonfinite.name):
        found |= named(StepEvent, nonfinite=sum(nonfinite))
    return dict(parts[0]) | found


def _of_parts(parts: Sequence[dict[str, Number]], name: str) -> list[float]:
    """Return a number of the parts that have it."""
    return [float(one[name]) for one in parts if name in one]
