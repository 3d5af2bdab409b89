"""The losses of a run around one of its backwards."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gradscope.recording.events import BackwardEvent, BackwardStart, Event, only

_AFTER = 20
"""Number of losses after a backward that show how training continued."""
_BEFORE = 5
"""Number of losses before a backward that show how high the loss usually is."""


def losses_from(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    """Yield the loss of a backward, then those of the next backwards from its line."""
    yield from islice(_losses(islice(events, backward.position, None), backward), _AFTER + 1)


def losses_before(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    """Yield the losses of the last backwards from the line of one, the latest first."""
    earlier = (events[position] for position in range(backward.position - 1, -1, -1))
    yield from islice(_losses(earlier, backward), _BEFORE)


def _losses(events: Iterable[Event], backward: BackwardStart) -> Iterator[float]:
    same = (one for one in only(BackwardEvent, events) if one.site == backward.site)
    yield from (one.loss for one in same if one.loss is not None)
