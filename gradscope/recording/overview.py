"""What a list of recordings shows of each, read in milliseconds from a long or running one, too."""

import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from math import fsum, isfinite, nan
from pathlib import Path

from gradscope.frozen import dataclass
from gradscope.recording.encoding import read_optional_float
from gradscope.recording.evidence.summaries import SeriesSummary, StepSummary
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.meta import Header, read_header
from gradscope.recording.paths import opened_to_read
from gradscope.recording.table import Record
from gradscope.recording.tables import EVENTS, REPEATED_STEPS, STEPS, evidence_tables
from gradscope.recording.thinning.buckets import COLUMNS, unpacked

_DOUBLE = 8
"""Bytes of a loss."""
_POINTS = 60
"""Largest number of points of a course."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCourse:
    """How the loss went, in few points."""

    first: float
    last: float
    points: tuple[tuple[float, float], ...]
    """Positions from 0 to 1, and the mean of the losses there: NaN if one is not finite."""


def course_of(losses: Mapping[int, float]) -> LossCourse | None:
    """Return the course of losses by step; None without any."""
    if not losses:
        return None
    steps = sorted(losses)
    start, length = steps[0], max(steps[-1] - steps[0], 1)
    bins: dict[int, list[float]] = {}
    for step in steps:
        bins.setdefault((step - start) * (_POINTS - 1) // length, []).append(losses[step])
    return LossCourse(
        first=losses[steps[0]],
        last=losses[steps[-1]],
        points=tuple((at / (_POINTS - 1), _mean(values)) for at, values in bins.items()),
    )


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if all(map(isfinite, values)) else nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A recording at a glance."""

    header: Header
    ending: RunEnding | None
    """The recorded end of a run; None during the run, and of a killed process."""
    is_run: bool
    """Whether it is of a training run; otherwise of single steps."""
    steps: int
    """Number of steps."""
    seconds: float
    """Seconds from the start of the recording to the last event."""
    losses: LossCourse | None
    """Losses, or their means over summarized steps; None without a loss."""


def read_overview(path: Path) -> Overview:
    """Read what a list shows of a recording.

    Raises:
        GradscopeError: The file is missing, not a recording, damaged, or of a newer version.
    """
    with opened_to_read(path) as base:
        header = read_header(dict(base.execute("SELECT name, value FROM meta")))
        runs, indices = _count(base)
        # The later ones are exact where several know a step.
        losses = {**_of_summaries(base), **_of_repeated(base), **_of_steps(base)}
        ending = next(iter(_records(base, RunEnding)), None)
        return Overview(
            header=header,
            ending=ending,
            is_run=runs > 0,
            steps=indices,
            seconds=_seconds(base),
            losses=course_of(losses),
        )


def _count(base: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of rows of runs, and the number of steps."""
    runs, rows, last = base.execute(
        f"SELECT ifnull(sum(kind = 'run'), 0), count(*), ifnull(max(step), -1) FROM {STEPS.name} "
        # The last row of a run may have events that led to no step.
        "WHERE kind <> 'run' OR optimizer IS NOT NULL"
    ).fetchone()
    if not runs:
        return 0, rows
    repeated = [one.first + one.count - 1 for one in REPEATED_STEPS.records(base)]
    # Not the number of rows: steps that were summarised have none.
    return runs, max(last, *repeated, -1) + 1


def _seconds(base: sqlite3.Connection) -> float:
    # By the key, which SQLite finds at once: `max(seconds)` would read all events.
    last = f"SELECT seconds FROM {EVENTS.name} ORDER BY id DESC LIMIT 1"
    of_events = [seconds for (seconds,) in base.execute(last)]
    return max((*of_events, *(one.ended for one in REPEATED_STEPS.records(base))), default=0.0)


def _of_steps(base: sqlite3.Connection) -> dict[int, float]:
    found = base.execute(f"SELECT step, loss FROM {STEPS.name} WHERE loss IS NOT NULL")
    return {step: loss for step, cell in found if (loss := read_optional_float(cell)) is not None}


def _of_repeated(base: sqlite3.Connection) -> dict[int, float]:
    """Return the losses of repeated steps with one backward pass each."""
    found: dict[int, float] = {}
    for one in REPEATED_STEPS.records(base):
        if len(one.losses) == _DOUBLE * one.count:
            found.update(enumerate(array("d", one.losses), one.first))
    return found


def _of_summaries(base: sqlite3.Connection) -> dict[int, float]:
    sizes = {one.first: one.bucket for one in _records(base, StepSummary)}
    found: dict[int, float] = {}
    for one in _records(base, SeriesSummary) if sizes else ():
        size = sizes.get(one.first)
        if one.kind != "loss" or size is None:
            continue
        for turn, bucket in enumerate(unpacked(getattr(one, name) for name in COLUMNS)):
            if bucket.count or bucket.broken:
                middle = one.first + turn * size + size // 2
                found[middle] = nan if bucket.broken else bucket.mean
    return found


def _records(base: sqlite3.Connection, kind: type[Record]) -> tuple[Record, ...]:
    return evidence_tables()[kind].records(base)
