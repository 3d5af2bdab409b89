"""Which steps of a run are captured, and which of them in full.

A plain capture has lines, modules and the norms of all gradients, and whether a value of the
forward was not finite. A full one also measures the values of the forward and the magnitudes of
gradients, and makes every probe.
"""

from collections.abc import Callable, Collection

FULL_EVERY = 50
"""Steps from one that is captured in full to the next, where all are captured."""

_IN_USE = 64
"""An optimizer that has not stepped for so many steps is not waited for."""

_MOST_IN_A_ROW = 16
"""So many steps an optimizer's turn is waited for."""


FIRST = 4
"""So many first steps of every optimizer are looked at."""


_EVERY = 100
"""Every so manieth step is looked at where nothing else is said."""


_AWAITED = 40
"""An optimizer that has not stepped for so many steps of others is waited for no longer."""


_TURNS = 16
"""So many steps of other optimizers a look goes on for, until each has had its turn."""


_MOST_AWAITED = 100
"""In so many steps altogether nothing but the first steps of an optimizer is waited for: a script
that makes one for each task or batch would be looked at for ever."""


_MOST_REQUESTS = 12


MOST_RESTS = 1_000_000


_MOST_SKIPS = 32
"""A gradient scaler that leaves out more steps than that does not find its scale any more."""


class Schedule:
    """Says of each step, before it begins, whether it is looked at.

    Which optimizer will make it is not known by then: so looks go on until each optimizer that is
    in use has made as many steps as are wanted.

    Args:
        every: After the first steps, every Nth is looked at; 0 for none, None for as many as
            `affords` allows, or every hundredth where that is not set.
        steps: Further ones.
    """

    def __init__(self, every: int | None, steps: Collection[int] = ()) -> None:
        self._every, self._steps = every, frozenset(steps)
        self.affords: Callable[[], bool] | None = None
        """Returns whether the next step can be looked at without costing too much."""
        self._made: dict[int, int] = {}
        """By optimizer that has yet to make its first steps: how many it has made."""
        self._since: dict[int, int] = {}
        """By those of them that are awaited: when it was made, or made its last step."""
        self._awaited = 0
        """Steps that were looked at to see the first of an optimizer."""
        self._last: dict[int, int] = {}
        """By optimizer that has made as many: when it made its last step."""
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

    @property
    def looks_a_line(self) -> int:
        """How often the backward at one line is looked at before a step is made.

        A script without any optimizer may call it for one model after the other.
        """
        return 1 if self._made or self._last else FIRST

    def made(self, optimizer: int) -> None:
        """Take in that an optimizer is there, whether it will ever step or not."""
        if optimizer not in self._last:
            self._made.setdefault(optimizer, 0)
            self._since.setdefault(optimizer, self.number)

    def steps_with(self, optimizer: int) -> None:
        """Take in that an optimizer makes no steps of its own: they are part of another's."""
        for table in (self._made, self._since, self._last):
            table.pop(optimizer, None)
        self._due.discard(optimizer)

    def stepped(self, optimizer: int) -> None:
        """Take in that an optimizer has made a step, which is over."""
        if optimizer in self._last:
            self._last[optimizer] = self.number
        else:
            self._note_first(optimizer)
        self._due.discard(optimizer)
        self.number += 1

    def _note_first(self, optimizer: int) -> None:
        made = self._made.pop(optimizer, 0) + 1
        if made < FIRST:
            self._made[optimizer], self._since[optimizer] = made, self.number
        else:
            self._since.pop(optimizer, None)
            self._last[optimizer] = self.number

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
        self.is_first = number < FIRST or number in self._steps
        if self.is_first:
            return True
        if self._awaits_first():
            self._awaited += 1
            self.is_first = True
            return True
        if self._is_asked or self._is_wanted(number):
            self._is_asked = False
            self._begin()
            return True
        return bool(self._due) and number < self._until

    def rests(self) -> int:
        """Return how many of the next steps are not due, whatever may be spent."""
        number = self.number
        if self._is_asked or self._due or self._since or number < FIRST:
            return 0
        due = [step for step in self._steps if step > number]
        if self._every is not None or self.affords is None:
            every = _EVERY if self._every is None else self._every
            due += [number - number % every + every] if every else []
        return min(due, default=number + MOST_RESTS) - number - 1

    def _is_wanted(self, number: int) -> bool:
        if self._every is None and self.affords is not None:
            return self.affords()
        every = _EVERY if self._every is None else self._every
        return every > 0 and number % every == 0

    def _awaits_first(self) -> bool:
        """Return whether an optimizer is to make one of its first steps, and may do so soon."""
        late = [key for key, since in self._since.items() if self.number >= since + _AWAITED]
        for key in late:
            del self._since[key]
        return bool(self._since) and self._awaited < _MOST_AWAITED

    def _begin(self) -> None:
        self._due = {key for key, last in self._last.items() if self.number - last <= 4 * _TURNS}
        self._until = self.number + _TURNS


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
