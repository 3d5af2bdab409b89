"""Measures the gradients, weights and updates of an optimizer's parameters."""

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import CALCULABLE, NotReadable, is_plain, stored, whole
from gradscope.capture.statistics import norms
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.optimizers import Known
from gradscope.capture.training.steps.open_steps import Copy
from gradscope.capture.training.steps.writer import Measured

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
                changes.append((record, torch.sub(new, old, out=old)))
        values = norms([change for _, change in changes])
    for (record, _), norm in zip(changes, values, strict=True):
        record.update = norm
