"""Detects events in a training that require a detailed capture."""

import math
from collections.abc import Mapping, Sequence

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.steps.measurements import Measured

_SETTLED = 5
"""Number of steps after which a parameter has a usual state."""


class GradientChanges:
    """Compares each step of an optimizer with those before."""

    def __init__(self) -> None:
        self._had: dict[int, tuple[bool, int]] = {}
        """By `id` of a parameter's entry: whether it had a non-zero gradient, and for how many
        consecutive steps."""
        self._steps: dict[int, int] = {}
        """By optimizer: number of its steps that were compared."""
        self._broken: set[int] = set()
        """Optimizers with non-finite gradients in their last step."""
        self._has_stale: dict[int, bool] = {}
        """By optimizer: whether its last step used gradients that an earlier one had used."""
        self._reached: dict[object, tuple[int, int]] = {}
        """By line of a backward: number of parameters it last reached, and how often in a row."""

    def has_new(
        self, optimizer: int, numbers: Mapping[str, Number], measured: Sequence[Measured] | None
    ) -> bool:
        """Return whether a gradient is non-finite, or newly missing, present or stale.

        This covers parts of a model that die, are frozen or unfrozen, join an optimizer later, or
        are replaced, so that nothing clears the gradients that the optimizer holds.

        Args:
            optimizer: Index of the optimizer that stepped.
            numbers: Statistics of its step.
            measured: Its parameters; None in a step without measurements.
        """
        has_stale = bool(numbers.get("stale"))
        # Stale gradients in the first step were there before the recording.
        is_stale = has_stale and not self._has_stale.get(optimizer, True)
        self._has_stale[optimizer] = has_stale
        if measured is None:
            return is_stale
        was_broken = optimizer in self._broken
        is_broken = not math.isfinite(float(numbers.get("norm", 0.0)))
        (self._broken.add if is_broken else self._broken.discard)(optimizer)
        made = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        changed = [self._is_changed(one, is_late=made > _SETTLED) for one in measured]
        return is_stale or (is_broken and not was_broken) or any(changed)

    def reaches_others(self, line: object, reached: int) -> bool:
        """Return whether a backward reaches another number of parameters than it used to.

        This covers parts that are unfrozen, or put in place of others, and are in no optimizer.

        Args:
            line: Line that called the backward.
            reached: Number of parameters that got a gradient.
        """
        before, times = self._reached.get(line, (reached, 0))
        self._reached[line] = (reached, times + 1 if reached == before else 1)
        return reached != before and times >= _SETTLED

    def _is_changed(self, one: Measured, *, is_late: bool) -> bool:
        has, known = bool(one.gradient), self._had.get(id(one.entry))
        if known is None:
            self._had[id(one.entry)] = (has, 1)
            return is_late
        had, times = known
        self._had[id(one.entry)] = (has, times + 1 if has == had else 1)
        return has != had and times >= _SETTLED
