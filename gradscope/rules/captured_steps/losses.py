"""The losses of a run around one of its backwards."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gradscope.recording.events import BackwardEvent, BackwardStart, Event, only

_AFTER = 20
"""Number of losses after a backward that show how training continued."""
_BEFORE = 5
"""Number of losses before a backward that show how high the loss usually is."""

_FIRST = 10
"""Number of backwards from a line that count as its first."""


def all_losses(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    """Yield all losses of a line for one of its first backwards, nothing for a later one."""
    if sum(1 for _ in _losses(events[: backward.position], backward)) < _FIRST:
        yield from _losses(events, backward)


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
