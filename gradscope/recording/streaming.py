"""The recording of a run in its file: memory holds a part of it."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from gradscope.frozen import dataclass
from gradscope.recording.evidence.summaries import StepSummary
from gradscope.recording.evidence.training import RoundedUpdate
from gradscope.recording.meta import read_header
from gradscope.recording.norm_table import NormTable
from gradscope.recording.paths import continuation_of, opened_to_read
from gradscope.recording.records import CapturedStep, EventRecord, Recording, StepRecord
from gradscope.recording.repetitions import RepeatedSteps, Sources, unfolded
from gradscope.recording.step_norms import has_norms, norm_tables
from gradscope.recording.table import BATCH, Record, Table
from gradscope.recording.tables import (
    EVENTS,
    REPEATED_STEPS,
    STEPS,
    captured_steps,
    evidence_tables,
    recording_of,
    records_in,
)

_StepEvents = tuple[StepRecord | None, list[EventRecord]]
"""A step, None if the run ended before it, and its events."""


def events_in_order(base: sqlite3.Connection) -> Iterator[EventRecord]:
    """Yield the events of a run of which every step is kept, those of repeated steps included."""
    return chain.from_iterable(events for _, events in _steps_in_order(base))


def _steps_in_order(base: sqlite3.Connection) -> Iterator[_StepEvents]:
    """Yield the steps of a run of which every step is kept, repeated ones included."""
    # Read in advance, because sources stay in memory until their last use, and no longer.
    last_uses = _last_uses(base)
    sources: dict[int, _StepEvents] = {}
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


def _unfolded(one: RepeatedSteps, known: dict[int, _StepEvents]) -> Iterator[_StepEvents]:
    wholes = [known[index] for index in one.sources]
    steps = [step for step, _ in wholes if step is not None]
    sources = Sources(steps, chain.from_iterable(events for _, events in wholes))
    return unfolded(one, sources)


def _whole_steps(
    steps: Iterable[StepRecord], events: Iterable[EventRecord]
) -> Iterator[tuple[int, _StepEvents]]:
    """Yield the steps that are recorded by themselves, by index, in order."""
    rest = iter(steps)
    step = next(rest, None)
    for index, group in groupby(events, attrgetter("step")):
        while step is not None and step.index < index:
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


_NORMS = 1 << 14
"""Largest number of norms in memory, but for a step with more parameters."""
_OF_STEPS = (STEPS, EVENTS, REPEATED_STEPS, evidence_tables()[RoundedUpdate])
"""Tables that grow with every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInFile:
    """A run whose steps are read from its file when they are asked for."""

    file: Path
    structure: Recording
    """What is known of the run besides its steps and captured steps."""
    is_in_order: bool
    """Whether its steps and events can be read a few at a time. Those of a run that keeps only a
    part of them cannot, and are few.
    """

    @classmethod
    def of(cls, file: Path) -> "RunInFile | None":
        """Return the run of a recording; None for one that has to be read as a whole.

        This is a recording of single steps, one in several files, and one by an earlier version.

        Raises:
            GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
        """
        following = continuation_of(file)
        if following.exists() and following.stat().st_size:
            return None
        with opened_to_read(file) as base:
            if not _is_run(base):
                return None
            structure = _part(base, without=_OF_STEPS)
            return cls(file=file, structure=structure, is_in_order=_is_in_order(base))

    def steps(self) -> Iterator[_StepEvents]:
        """Yield all steps with their events.

        Raises:
            GradscopeError: The file cannot be read.
        """
        with opened_to_read(self.file) as base:
            yield from _steps_in_order(base)

    def events(self) -> Iterator[EventRecord]:
        """Yield the events of all steps.

        Raises:
            GradscopeError: The file cannot be read.
        """
        with opened_to_read(self.file) as base:
            yield from events_in_order(base)

    def norms(self) -> Iterator[NormTable]:
        """Yield the norms of all steps, those of a few consecutive steps at a time.

        Raises:
            GradscopeError: The file cannot be read.
        """
        with opened_to_read(self.file) as base:
            steps = max(_NORMS // max(len(self.structure.parameters), 1), 1)
            yield from norm_tables(base, self.numels, steps)

    def captured_steps(self) -> Iterator[CapturedStep]:
        """Yield the captured steps.

        Raises:
            GradscopeError: The file cannot be read.
        """
        with opened_to_read(self.file) as base:
            yield from captured_steps(base)

    @property
    def numels(self) -> Mapping[int, int]:
        """By parameter: its number of elements."""
        return {record.index: record.numel for record in self.structure.parameters}


def _part(base: sqlite3.Connection, without: Collection[Table[Any]]) -> Recording:
    """Return a recording without the records of some tables, norms and captured steps."""
    header = read_header(dict(base.execute("SELECT name, value FROM meta")))
    records = records_in(base)
    return recording_of(header, lambda one: () if one in without else records(one), stats=())


def _is_run(base: sqlite3.Connection) -> bool:
    """Return whether a file has a run whose norms are stored by step."""
    query = f"SELECT 1 FROM {STEPS.name} WHERE kind = 'run' LIMIT 1"
    return base.execute(query).fetchone() is not None and has_norms(base)


def _is_in_order(base: sqlite3.Connection) -> bool:
    """Return whether the steps and events of a run are all there, in order."""
    if next(evidence_tables()[StepSummary].rows(base), None) is not None:
        return False
    return not any(
        base.execute(
            f"""SELECT 1 FROM (SELECT step, lag(step) OVER (ORDER BY id) AS before FROM {table})
                WHERE step < before LIMIT 1"""
        ).fetchone()
        for table in (STEPS.name, EVENTS.name)
    )
