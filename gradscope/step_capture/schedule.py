"""Decides which steps of a run are captured, and which of them in full.

A plain capture has lines, modules, the norms of all gradients, and whether the forward's values
were finite. A full one also measures the values of the forward and the magnitudes of gradients, and
runs every probe.
"""

import math
from collections.abc import Callable, Collection

from gradscope.switch import NO_TENSORS

FULL_EVERY = 50
"""Interval of full captures, if all steps are captured."""

_IN_USE = 64
"""Number of steps after which an idle optimizer is not waited for."""

_MOST_IN_A_ROW = 16
"""Maximum number of steps to wait for an optimizer's turn."""


FIRST = 4
"""Number of first steps of every optimizer that are captured."""


_EVERY = 100
"""Default interval of captured steps."""


_AWAITED = 40
"""Number of other optimizers' steps after which an idle optimizer is not waited for."""


_TURNS = 16
"""Maximum number of steps of other optimizers in a capture, until each had its turn."""


_MOST_AWAITED = 100
"""Maximum number of steps in total that only wait for an optimizer's first steps. A script that
makes an optimizer for each task or batch would otherwise always be captured."""


_MOST_REQUESTS = 12


_MOST_SKIPS = 32
"""Number of skipped steps after which a gradient scaler no longer looks for its scale."""


_MOST_NODES = 50_000
"""Maximum number of nodes of a captured graph. Larger ones would take too long."""

_MOST_NODES_OF_ALL = 400_000
"""Number of nodes in all captures, after which only first steps and problems are captured."""


class Schedule:
    """Decides for each step, before it starts, whether it is captured.

    The optimizer of the step is not known by then. Captures therefore continue until each active
    optimizer has made enough steps.

    Args:
        every: After the first steps, every Nth is captured; 0 for none. None for as many as
            `affords` allows, or every 100th if that is not set.
        steps: Additional steps to capture.
    """

    def __init__(self, every: int | None, steps: Collection[int] = ()) -> None:
        self._every, self._steps = every, frozenset(steps)
        self.affords: Callable[[], bool] | None = None
        """Returns whether the budget allows to capture the next step."""
        self._made: dict[int, int] = {}
        """By optimizer that has yet to make its first steps: number of its steps."""
        self._since: dict[int, int] = {}
        """By those of them that are waited for: step of their construction or last step."""
        self._awaited = 0
        """Number of steps captured only to wait for an optimizer's first ones."""
        self._last: dict[int, int] = {}
        """By optimizer that has made its first steps: its last step."""
        self._due: set[int] = set()
        """Optimizers whose turn is waited for."""
        self._until = 0
        self._requests, self._next_request = 0, 0
        self._is_asked = False
        """Whether a requested capture has not started yet."""
        self._skips = 0
        self.number = 0
        """Number of the starting or running step."""
        self.is_first = False
        """Whether the due step is among an optimizer's first ones, or was named."""
        self.is_asked_for = False
        """Whether the capture of the due step was requested."""

    @property
    def captures_per_line(self) -> int:
        """How often the backward at one line is captured before any step.

        A script without any optimizer may call it for several models in turn.
        """
        return 1 if self._made or self._last else FIRST

    def made(self, optimizer: int) -> None:
        """Add an optimizer, whether it will ever step or not."""
        if optimizer not in self._last:
            self._made.setdefault(optimizer, 0)
            self._since.setdefault(optimizer, self.number)

    def steps_with(self, optimizer: int) -> None:
        """Record that an optimizer's steps are part of another's."""
        for table in (self._made, self._since, self._last):
            table.pop(optimizer, None)
        self._due.discard(optimizer)

    def stepped(self, optimizer: int) -> None:
        """Record that an optimizer has finished a step."""
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
        """Record a skipped step; return whether another capture follows."""
        self._skips += 1
        return self._skips <= _MOST_SKIPS

    def request(self) -> None:
        """Request captures of the next steps because of a problem; not granted too often."""
        if self._requests < _MOST_REQUESTS and self.number >= self._next_request:
            self._requests += 1
            # Doubled distances, so that a lasting problem is captured a logarithmic number of
            # times.
            self._next_request = 2 * self.number
            self._is_asked = True

    def is_due(self) -> bool:
        """Return whether the next step is captured."""
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

    def rests(self) -> float:
        """Return how many of the next steps are not due, whatever the budget."""
        number = self.number
        if self._is_asked or self._due or self._since or number < FIRST:
            return 0
        due = [step for step in self._steps if step > number]
        if self._every is not None or self.affords is None:
            every = _EVERY if self._every is None else self._every
            due += [number - number % every + every] if every else []
        return min(due, default=math.inf) - number - 1

    def _is_wanted(self, number: int) -> bool:
        if self._every is None and self.affords is not None:
            return self.affords()
        every = _EVERY if self._every is None else self._every
        return every > 0 and number % every == 0

    def _awaits_first(self) -> bool:
        """Return whether an optimizer may soon make one of its first steps."""
        late = [key for key, since in self._since.items() if self.number >= since + _AWAITED]
        for key in late:
            del self._since[key]
        return bool(self._since) and self._awaited < _MOST_AWAITED

    def _begin(self) -> None:
        # An optimizer without recent steps may never step again.
        self._due = {key for key, last in self._last.items() if self.number - last <= 4 * _TURNS}
        self._until = self.number + _TURNS


class Thoroughness:
    """Decides for each captured step whether it is captured in full.

    Full captures are the first steps of every optimizer, named and requested steps, and of all
    others one in `FULL_EVERY`. If few steps are captured, all are captured in full.

    Args:
        schedule: Decides which steps are captured.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._last: dict[int, int] = {}
        """By optimizer: its last step."""
        self._last_full: dict[int, int] = {}
        """By optimizer: its last step that was captured in full."""
        self._is_asked = False
        self._in_a_row = 0

    def ask(self) -> None:
        """Request a full capture of the next step, for something captured for the first time."""
        self._is_asked = True

    def is_full(self) -> bool:
        """Return whether the starting step, which is captured, is captured in full."""
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
            # Some optimizer steps too rarely: without an end, every step would be captured in full.
            self._last_full.update(dict.fromkeys(owed, number))
        return bool(owed) or not in_use

    def stepped(self, optimizer: int, *, in_full: bool) -> None:
        """Record that an optimizer makes a step, and whether it is captured in full."""
        number = self._schedule.number
        self._last[optimizer] = number
        if in_full:
            self._last_full[optimizer] = number


class GraphLimits:
    """The sizes up to which graphs are captured."""

    def __init__(self) -> None:
        self._nodes = 0
        self.reason: str | None = None
        """Why no more graphs are captured; None while some may be."""

    def take(self, nodes: int, *, is_early: bool) -> bool:
        """Return whether a graph of some nodes may be captured, and count it if so.

        Args:
            nodes: Number of its nodes.
            is_early: Whether it is one of the first, which are captured after large ones too.
        """
        if nodes > _MOST_NODES:
            self.reason = (
                f"a graph of {nodes:,} operations is too large to capture"
                f" ({NO_TENSORS} avoids the attempt)"
            )
            return False
        if self._nodes > _MOST_NODES_OF_ALL and not is_early:
            return False
        self._nodes += nodes
        return True
