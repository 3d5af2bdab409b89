"""The steps of a run with their events, in order, read from the file a few at a time."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter

from gradscope.recording.records import EventRecord, StepRecord
from gradscope.recording.repetitions import RepeatedSteps, Sources, unfolded
from gradscope.recording.table import BATCH, Record, Table
from gradscope.recording.tables import EVENTS, REPEATED_STEPS, STEPS

StepEvents = tuple[StepRecord | None, list[EventRecord]]
"""A step, None if the run ended before it, and its events."""


def events_in_order(base: sqlite3.Connection) -> Iterator[EventRecord]:
    """Yield the events of a run of which every step is kept, those of repeated steps included."""
    return chain.from_iterable(events for _, events in steps_in_order(base))


def steps_in_order(base: sqlite3.Connection) -> Iterator[StepEvents]:
    """Yield the steps of a run of which every step is kept, repeated ones included."""
    # Read in advance, because sources stay in memory until their last use, and no longer.
    last_uses = _last_uses(base)
    sources: dict[int, StepEvents] = {}
    repeated = _records(REPEATED_STEPS, base)
    following = next(repeated, None)
    for index, whole in _whole_steps(_records(STEPS, base), _records(EVENTS, base)):
        # Rows of both tables ascend: merging them needs only the next of each.
        while following is not None and following.first < index:
            yield from _unfolded(following, sources)
            following = next(repeated, None)
        if index in last_uses:
            sources[index] = whole
        for unused in [one for one in sources if last_uses[one] < index]:
            del sources[unused]
        yield whole
    for one in () if following is None else (following, *repeated):
        yield from _unfolded(one, sources)


def _last_uses(base: sqlite3.Connection) -> dict[int, int]:
    """Return, by step that others repeat: the first of the last steps that repeat it."""
    found: dict[int, int] = {}
    for one in _records(REPEATED_STEPS, base):
        found.update(dict.fromkeys(one.sources, one.first))
    return found


def _unfolded(one: RepeatedSteps, known: dict[int, StepEvents]) -> Iterator[StepEvents]:
    wholes = [known[index] for index in one.sources]
    steps = [step for step, _ in wholes if step is not None]
    sources = Sources(steps, chain.from_iterable(events for _, events in wholes))
    return unfolded(one, sources)


def _whole_steps(
    steps: Iterable[StepRecord], events: Iterable[EventRecord]
) -> Iterator[tuple[int, StepEvents]]:
    """Yield the steps that are recorded by themselves, by index, in order."""
    rest = iter(steps)
    step = next(rest, None)
    for index, group in groupby(events, attrgetter("step")):
        while step is not None and step.index < index:
            # A step may have no event, and events at the end of a run no step.
            yield step.index, (step, [])
            step = next(rest, None)
        is_whole = step is not None and step.index == index
        yield index, (step if is_whole else None, list(group))
        step = next(rest, None) if is_whole else step
    for one in () if step is None else (step, *rest):
        yield one.index, (one, [])


def _records(table: Table[Record], base: sqlite3.Connection) -> Iterator[Record]:
    rows = table.rows(base)
    batches: Iterator[Sequence[tuple[object, ...]]] = iter(lambda: list(islice(rows, BATCH)), [])
    return chain.from_iterable(map(table.read_many, batches))
