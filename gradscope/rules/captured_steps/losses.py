"""The losses of a run around one of its backwards."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gradscope.recording.events import BackwardEvent, BackwardStart, Event, only
from gradscope.recording.records import StepRecord

_AFTER = 20
"""Number of losses after a backward that show how training continued."""
_BEFORE = 5
"""Number of losses before a backward that show how high the loss usually is."""

_FIRST = 10
"""Number of backwards from a line that count as its first."""


class Losses(NamedTuple):
    """The losses of a run around one of its backwards."""

    own: tuple[float, ...] = ()
    """The loss of the backward, then those of the next backwards from its line."""
    before: tuple[float, ...] = ()
    """Losses of the last backwards from its line, the latest first."""
    of_line: tuple[float, ...] = ()
    """All losses of its line if it is one of the first backwards there; otherwise none."""


def losses_around(
    events: Sequence[Event], backward: BackwardStart | None, step: StepRecord | None
) -> Losses:
    """Return the losses around a backward; those of a captured step alone if it is unknown."""
    if backward is None:
        return Losses(own=() if step is None or step.loss is None else (step.loss,))
    return Losses(
        own=tuple(_losses_from(events, backward)),
        before=tuple(_losses_before(events, backward)),
        of_line=tuple(_all_losses(events, backward)),
    )


def _all_losses(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    if sum(1 for _ in _losses(events[: backward.position], backward)) < _FIRST:
        yield from _losses(events, backward)


def _losses_from(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    yield from islice(_losses(islice(events, backward.position, None), backward), _AFTER + 1)


def _losses_before(events: Sequence[Event], backward: BackwardStart) -> Iterator[float]:
    earlier = (events[position] for position in range(backward.position - 1, -1, -1))
    yield from islice(_losses(earlier, backward), _BEFORE)


def _losses(events: Iterable[Event], backward: BackwardStart) -> Iterator[float]:
    same = (one for one in only(BackwardEvent, events) if one.site == backward.site)
    yield from (one.loss for one in same if one.loss is not None)
