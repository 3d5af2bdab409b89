"""How quickly the memory of recurrent layers fades, in decades a time step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gradscope.recording.evidence.forward import HorizonRecord
from gradscope.rules.context import RuleContext

FADED = 2.0
"""Decades after which a gradient counts as gone: what is left is 1 %."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A recurrent layer, and how its gradient changes from one time step to the one before."""

    record: HorizonRecord
    path: str
    slope: float
    """Decades by which the gradient fades a step; negative where it grows."""

    @property
    def horizon(self) -> float:
        """Steps after which 1 % of the gradient is left; infinite where it does not fade."""
        return FADED / self.slope if self.slope > 0 else math.inf

    @property
    def growth(self) -> float:
        """Decades by which the gradient grows from the last step back to the first."""
        return -self.slope * self.record.steps

    @property
    def faded(self) -> float:
        """Decades lost between the first output that is used and the first input."""
        return self.slope * self.record.read_from


def memories(context: RuleContext) -> Iterator[Memory]:
    """Yield what is known of recurrent layers, in the order of the model."""
    for record in context.recording.evidence_of(HorizonRecord):
        slope = _slope(record.norms)
        if slope is not None:
            yield Memory(record, context.recording.modules[record.module].path, slope)


def _slope(norms: tuple[float, ...]) -> float | None:
    """Return the slope of the logarithms by least squares, over the steps before any is zero."""
    levels = []
    for norm in reversed(norms):
        if norm <= 0 or not math.isfinite(norm):
            break
        levels.append(math.log10(norm))
    if len(levels) < 2:
        return None
    middle, mean = (len(levels) - 1) / 2, sum(levels) / len(levels)
    spread = sum((position - middle) ** 2 for position in range(len(levels)))
    shared = sum((position - middle) * (level - mean) for position, level in enumerate(levels))
    return -shared / spread
