"""Which captured steps are captured in full, and which plainly.

A plain one has lines, modules and the norms of all gradients, and whether a value of the forward
was not finite. A full one measures the values of the forward and the magnitudes of gradients, too,
and makes every examination.
"""

from gradscope.looks.schedule import Schedule

FULL_EVERY = 50
"""Steps from one that is captured in full to the next, where all are captured."""

_IN_USE = 64
"""An optimizer that has not stepped for so many steps is not waited for."""

_MOST_IN_A_ROW = 16
"""So many steps an optimizer's turn is waited for."""


class Thoroughness:
    """Says of each step that is captured whether it is captured in full.

    The first steps of every optimizer are, those that are named or asked for, and of all others one
    in `FULL_EVERY`; so that every step is where few are captured.

    Args:
        schedule: When steps are captured.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._last: dict[int, int] = {}
        """By optimizer: the last step of its own."""
        self._last_full: dict[int, int] = {}
        """By optimizer: the last one of these that was captured in full."""
        self._is_asked = False
        self._in_a_row = 0

    def ask(self) -> None:
        """Ask for the next step in full, as something is captured for the first time."""
        self._is_asked = True

    def is_full(self) -> bool:
        """Return whether the step that begins, and is captured, is captured in full."""
        if self._schedule.is_asked_for or self._is_asked:
            self._is_asked = False
            self._last_full = dict.fromkeys(self._last_full, -FULL_EVERY)  # each has its turn
            return True
        if self._schedule.is_first:
            return True
        number = self._schedule.number
        in_use = {key for key, last in self._last.items() if number - last <= _IN_USE}
        owed = {key for key in in_use if number - self._last_full.get(key, 0) >= FULL_EVERY}
        self._in_a_row = self._in_a_row + 1 if owed else 0
        if self._in_a_row > _MOST_IN_A_ROW:
            self._in_a_row = 0
            self._last_full.update(dict.fromkeys(owed, number))
        return bool(owed) or not in_use

    def stepped(self, optimizer: int, *, in_full: bool) -> None:
        """Take in that an optimizer is making a step, and whether that is captured in full."""
        number = self._schedule.number
        self._last[optimizer] = number
        if in_full:
            self._last_full[optimizer] = number
