"""What a step measures and stores of its parameters, and which of its updates rounding removes."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import NotReadable, is_plain, stored
from gradscope.capture.step.stored_gradients import Kept, keep
from gradscope.capture.training.gradient_state import Entry
from gradscope.frozen import dataclass
from gradscope.recording.stored_gradient import KeepMode

_HALVES = (torch.bfloat16, torch.float16)

_SAMPLED = 8192
"""Number of evenly spread elements sampled per parameter. They suffice for a share."""
StoredEntry = tuple[Entry, Kept | None]
"""None stands for an unreadable gradient."""


class Sample(NamedTuple):
    """Elements of a parameter before a step."""

    entry: Entry
    before: Tensor


class Rounded(NamedTuple):
    """Effect of a step on a sample."""

    entry: Entry
    moving: int
    """Elements whose gradient is finite and not zero."""
    unchanged: int
    """Elements among these that the step left unchanged."""


def samples_of(entries: Iterable[Entry]) -> list[Sample]:
    """Return samples of the half-precision parameters."""
    with DisableTorchFunction(), torch.no_grad():
        return [
            # A copy, because the optimizer writes into the same memory.
            Sample(entry, elements.clone())
            for entry in entries
            if (parameter := entry.parameter()) is not None
            and parameter.dtype in _HALVES
            and (elements := _sampled(parameter)) is not None
        ]


def rounded(samples: Sequence[Sample]) -> list[Rounded]:
    """Count the elements that a step left unchanged; the gradients are still those it used."""
    counted = [(one, counts) for one in samples if (counts := _counts(one)) is not None]
    if not counted:
        return []
    # One transfer for all: every read from an accelerator waits for all work before it.
    device = counted[0][1].device
    values = torch.stack([counts.to(device) for _, counts in counted]).tolist()
    return [
        Rounded(one.entry, moving, unchanged)
        for (one, _), (moving, unchanged) in zip(counted, values, strict=True)
    ]


def _counts(sample: Sample) -> Tensor | None:
    parameter = sample.entry.parameter()
    gradient = None if parameter is None else parameter.grad
    if parameter is None or gradient is None:
        return None
    with DisableTorchFunction(), torch.no_grad():
        after, slopes = _sampled(parameter), _sampled(gradient)
        if after is None or slopes is None:
            return None
        if after.shape != sample.before.shape or slopes.shape != sample.before.shape:
            return None
        # An element without a gradient, or with a broken one, tells nothing about rounding.
        is_moving = (slopes != 0) & torch.isfinite(slopes)
        return torch.stack([is_moving.sum(), (is_moving & (after == sample.before)).sum()])


def _sampled(tensor: Tensor) -> Tensor | None:
    """Return some elements, None if they are unreadable or not contiguous."""
    try:
        part = stored(tensor)
    except NotReadable:
        return None
    if not is_plain(part):
        return None
    flat = part.flatten()
    return flat[:: 1 + flat.numel() // _SAMPLED]


@dataclasses.dataclass(slots=True)
class Measured:
    """The statistics of one parameter in one step."""

    entry: Entry
    weight: float | None
    """None if it is unreadable."""
    gradient: float | None
    numel: int
    requires_grad: bool
    update: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStorage:
    """How the gradients of some steps are stored, as the optimizer sees them.

    Steps are counted per optimizer: if two alternate, every 100th step of both together may always
    be that of the first.
    """

    mode: KeepMode = "none"
    every: int = 100

    def is_due(self, made: int) -> bool:
        """Return whether the gradients of an optimizer's next step are due, after `made` steps."""
        return self.mode != "none" and made % self.every == 0

    def kept(self, entries: list[Entry], scale: float) -> list[StoredEntry]:
        """Store the gradients of an optimizer's parameters.

        Args:
            entries: The parameters.
            scale: Divisor that the optimizer itself applies to their gradients.
        """
        found = [
            (entry, parameter.grad)
            for entry in entries
            if (parameter := entry.parameter()) is not None and parameter.grad is not None
        ]
        kept = keep([gradient for _, gradient in found], self.mode, scale=scale)
        return [(entry, one) for (entry, _), one in zip(found, kept, strict=True)]
