"""Which steps of a run are looked at closely."""

from collections.abc import Collection

FIRST = 4
"""So many first steps of every optimizer are looked at."""

_AWAITED = 40
"""An optimizer that has not stepped for so many steps of others is waited for no longer."""

_TURNS = 16
"""So many steps of other optimizers a look goes on for, until each has had its turn."""

_MOST_REQUESTS = 12

_MOST_SKIPS = 32
"""A gradient scaler that leaves out more steps than that does not find its scale any more."""


class Schedule:
    """Says of each step, before it begins, whether it is looked at.

    Which optimizer will make it is not known by then: so looks go on until each optimizer that is
    in use has made as many steps as are wanted.

    Args:
        every: After the first steps, every so manieth is looked at; 0 for none.
        steps: Further ones.
    """

    def __init__(self, every: int, steps: Collection[int] = ()) -> None:
        self._every, self._steps = every, frozenset(steps)
        self._made: dict[int, int] = {}
        """By optimizer: its steps."""
        self._last: dict[int, int] = {}
        """By optimizer: when it made the last of them."""
        self._since: dict[int, int] = {}
        """By optimizer: when it was made, or made the last of them."""
        self._due: set[int] = set()
        """The optimizers whose turn is awaited."""
        self._until = 0
        self._requests, self._next_request = 0, 0
        self._is_asked = False
        """Whether the step that was asked for has not begun."""
        self._skips = 0
        self.number = 0
        """Of the step that begins, or goes on."""
        self.is_first = False
        """Whether the step that is due is one of the first of an optimizer, or was named."""
        self.is_asked_for = False
        """Whether the step that is due was asked for."""

    def made(self, optimizer: int) -> None:
        """Take in that an optimizer is there, whether it will ever step or not."""
        self._made.setdefault(optimizer, 0)
        self._since.setdefault(optimizer, self.number)

    def stepped(self, optimizer: int) -> None:
        """Take in that an optimizer has made a step, which is over."""
        self._made[optimizer] = self._made.get(optimizer, 0) + 1
        self._last[optimizer] = self._since[optimizer] = self.number
        self._due.discard(optimizer)
        self.number += 1

    def skipped(self) -> bool:
        """Take in that a step was left out; return whether its look is followed by another."""
        self._skips += 1
        return self._skips <= _MOST_SKIPS

    def request(self) -> None:
        """Ask for a look at the next steps, as there is something to see; not granted too often."""
        if self._requests < _MOST_REQUESTS and self.number >= self._next_request:
            self._requests += 1
            self._next_request = 2 * self.number
            self._is_asked = True

    def is_due(self) -> bool:
        """Return whether the next step is looked at."""
        number = self.number
        self.is_asked_for = self._is_asked
        self.is_first = (
            number < FIRST
            or number in self._steps
            or any(made < FIRST and self._is_awaited(key) for key, made in self._made.items())
        )
        if self.is_first:
            return True
        if self._is_asked or (self._every and number % self._every == 0):
            self._is_asked = False
            self._begin()
        return bool(self._due) and number < self._until

    def _is_awaited(self, optimizer: int) -> bool:
        return self.number < self._since[optimizer] + _AWAITED

    def _begin(self) -> None:
        in_use = {key for key, last in self._last.items() if self.number - last <= 4 * _TURNS}
        self._due = in_use or set(self._made)
        self._until = self.number + _TURNS
