"""Running steps, also of several optimizers at once, and the measurements of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import CALCULABLE, NotReadable, is_plain, stored, whole
from gradscope.capture.statistics import norms
from gradscope.capture.training.event_log import Number
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.locations import Location
from gradscope.capture.training.optimizers import Known
from gradscope.capture.training.steps.measurements import Measured, Rounded, Sample, StoredEntry
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
    # An optimizer that steps several times within another counts by its last step.
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


_COPIED = 50_000_000
"""Number of elements above which an optimizer is too large to copy for measuring updates."""

_SUBTRACTED = CALCULABLE | {torch.complex64, torch.complex128}


def gradient_of(entry: Entry) -> Tensor | None:
    """Return the gradient of a parameter; None if it has none, or is gone."""
    parameter = entry.parameter()
    return None if parameter is None else parameter.grad


def own_scale(one: Known) -> float:
    """Return the divisor of an optimizer that unscales itself, as fused ones do."""
    # `GradScaler` hands fused optimizers the scale: they divide inside their kernel, and
    # `.grad` keeps the scaled values.
    scale = getattr(one.optimizer(), "grad_scale", None)
    known = whole(scale) if isinstance(scale, Tensor) else None
    return 1.0 if known is None else float(known)


def measure(one: Known, *, scale: float, with_weights: bool) -> list[Measured]:
    """Measure the readable gradients and weights of an optimizer's parameters."""
    entries = [(e, p) for e in one.entries if (p := e.parameter()) is not None]
    gradients = [
        (position, p.grad) for position, (_, p) in enumerate(entries) if p.grad is not None
    ]
    # Parameters may be subclasses, whose `__torch_function__` is code of the script.
    with DisableTorchFunction(), torch.no_grad():
        weights = [p for _, p in entries] if with_weights else []
        values = norms(weights + [gradient for _, gradient in gradients])
    if with_weights:
        one.weights = {id(e): norm for (e, _), norm in zip(entries, values, strict=False)}
        # What is left are the norms of the gradients.
        del values[: len(entries)]
    found = {
        position: None if norm is None else norm / scale
        for (position, _), norm in zip(gradients, values, strict=True)
    }
    return [
        Measured(
            entry,
            one.weights.get(id(entry)),
            found.get(position),
            p.numel(),
            p.requires_grad,
        )
        for position, (entry, p) in enumerate(entries)
        if position not in found
        or found[position] is not None  # otherwise it exists and is unreadable
    ]


def copies(one: Known) -> list[Copy]:
    """Return copies of an optimizer's parameters that are readable on the CPU."""
    parameters = [(e, p) for e in one.entries if (p := e.parameter()) is not None]
    if sum(p.numel() for _, p in parameters) > _COPIED:
        return []
    # Optimizers write in place, and fused and foreach ones write all parameters at once: the
    # values before a step are gone after it.
    with torch.no_grad():
        found = ((entry, _on_cpu(p)) for entry, p in parameters)
        return [(entry, part.clone()) for entry, part in found if part is not None]


def _on_cpu(parameter: Tensor) -> Tensor | None:
    try:
        part = stored(parameter)
    except NotReadable:
        return None
    return part if part.is_cpu and part.dtype in _SUBTRACTED and is_plain(part) else None


def measure_updates(before: list[Copy], measured: list[Measured]) -> None:
    """Measure how far a step has moved the parameters that were copied before it."""
    records = {id(record.entry): record for record in measured}
    changes: list[tuple[Measured, Tensor]] = []
    with torch.no_grad():
        for entry, old in before:
            record, parameter = records.get(id(entry)), entry.parameter()
            new = None if parameter is None else _on_cpu(parameter)
            if record is None or new is None:
                continue
            if (new.shape, new.dtype) == (old.shape, old.dtype):
                # Into the copy, which is not needed any more: updates take no further memory.
                changes.append((record, torch.sub(new, old, out=old)))
        values = norms([change for _, change in changes])
    for (record, _), norm in zip(changes, values, strict=True):
        record.update = norm
