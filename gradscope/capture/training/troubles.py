"""Says when something has happened in a training that deserves a closer look."""

import math
from collections.abc import Mapping, Sequence

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.step_writer import Measured

_SETTLED = 5
"""Steps after which a parameter has shown what it is used to."""


class Troubles:
    """Compares each step of an optimizer with those before."""

    def __init__(self) -> None:
        self._had: dict[int, tuple[bool, int]] = {}
        """By `id` of a parameter's entry: whether it had a gradient other than zero, and in how
        many steps on end that was so."""
        self._steps: dict[int, int] = {}
        """By optimizer: how many of its steps were compared."""
        self._broken: set[int] = set()
        """The optimizers whose gradients were not finite in their last step."""

    def has_new(
        self, optimizer: int, numbers: Mapping[str, Number], measured: Sequence[Measured] | None
    ) -> bool:
        """Return whether a gradient is not finite, gone, or there for the first time in long.

        So parts of a model that die, that are frozen or unfrozen, and that an optimizer gets later.

        Args:
            optimizer: The place of that which has stepped.
            numbers: Of its step.
            measured: Its parameters; None in a step in which nothing was measured.
        """
        if measured is None:
            return False
        was_broken = optimizer in self._broken
        is_broken = not math.isfinite(float(numbers.get("norm", 0.0)))
        (self._broken.add if is_broken else self._broken.discard)(optimizer)
        made = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        changed = [self._is_changed(one, is_late=made > _SETTLED) for one in measured]
        return (is_broken and not was_broken) or any(changed)

    def _is_changed(self, one: Measured, *, is_late: bool) -> bool:
        has, known = bool(one.gradient), self._had.get(id(one.entry))
        if known is None:
            self._had[id(one.entry)] = (has, 1)
            return is_late
        had, times = known
        self._had[id(one.entry)] = (has, times + 1 if has == had else 1)
        return has != had and times >= _SETTLED
