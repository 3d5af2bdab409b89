"""When to read a running training again."""

from collections.abc import Callable
from time import monotonic

_SHARE = 0.02
"""Maximum share of the time for the turns."""


class Pace:
    """Says when something is due again, by a time between turns and a share of the time.

    Args:
        between: Minimum number of seconds from the end of one turn to the next.
        share: Maximum share of the time that the turns take together.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, between: float, share: float = _SHARE, clock: Callable[[], float] = monotonic
    ) -> None:
        self._between, self._share, self._clock = between, share, clock
        self._began, self._next, self._took = 0.0, 0.0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for a turn."""
        return self._clock() >= self._next

    @property
    def last_took(self) -> float:
        """Seconds that the last turn took."""
        return self._took

    def postpone(self) -> None:
        """Postpone the next turn, as after a turn that takes no time."""
        self._next = self._clock() + self._between

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        now = self._clock()
        self._took = now - self._began
        self._next = now + max(self._between, self._took / self._share)
