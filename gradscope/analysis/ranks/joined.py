"""Joins the ranks of a job into one recording, whose norms are those of whole parameters."""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gradscope.analysis.job import Job, Rank
from gradscope.recording.norm_table import NOT_MEASURED, NormTable, norms_of
from gradscope.recording.records import EventRecord, ParameterRecord, Recording

Row = tuple[float, float, float]
"""Norms of gradient, weight and update."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of sharded parameters that a rank holds."""

    norms: NormTable
    names: Mapping[int, str]
    """Name of each parameter, by index."""
    rows: Mapping[tuple[int, str], int]
    """Rows by step and name."""

    @classmethod
    def of(cls, rank: Rank, names: Sequence[str]) -> "_Parts":
        norms = norms_of(rank.recording)
        wanted = set(names)
        known = {p.index: p.name for p in rank.recording.parameters if p.name in wanted}
        pairs = enumerate(zip(norms.steps, norms.parameters, strict=True))
        rows = {(step, known[index]): row for row, (step, index) in pairs if index in known}
        return cls(norms, known, rows)


def joined_recording(recordings: Sequence[Recording]) -> Recording:
    """Return the recording of the first rank, with the norms of whole parameters.

    The parts of sharded parameters are joined in the steps that all ranks measured; norms of other
    steps are left out. Where nothing is sharded, the first rank's norms are those of the job.

    Args:
        recordings: Recordings of the ranks, by rank.
    """
    job = Job.of(recordings)
    first = job.first
    names = joinable_names(job)
    if not names:
        return first.recording
    joined = _table(job, names)
    numels = {one.index: _numel(first, one) for one in first.recording.parameters}
    return replace(
        first.recording,
        parameters=tuple(
            replace(
                one,
                shape=replace(one.shape, dims=first.placements[one.name].shape),
                numel=numels[one.index],
                is_shard=False,
            )
            if one.name in names
            else one
            for one in first.recording.parameters
        ),
        parameter_stats=replace(joined, numels=numels),
        events=tuple(map(_without_norm, first.recording.events)),
    )


def _without_norm(event: EventRecord) -> EventRecord:
    """Return an event without the norm of the part that a rank holds of the step's gradients."""
    if event.kind != "step":
        return event
    numbers = tuple((name, value) for name, value in event.numbers if name != "norm")
    return replace(event, numbers=numbers)


def joinable_names(job: Job) -> frozenset[str]:
    """Return the sharded parameters whose parts were all recorded."""
    is_read = not any(rank.recording.is_outline for rank in job.ranks)
    is_whole = job.is_joined and not job.missing and is_read
    return frozenset(
        name
        for name in (job.shared_names if is_whole else ())
        if all(rank.placements[name].kind == "sharded" for rank in job.ranks)
    )


def _numel(first: Rank, one: ParameterRecord) -> int:
    placement = first.placements.get(one.name)
    return one.numel if placement is None else math.prod(placement.shape)


def _table(job: Job, names: frozenset[str]) -> NormTable:
    """Return the first rank's norms with those of sharded parameters joined."""
    known = norms_of(job.first.recording)
    whole = {one.index: one.name for one in job.first.recording.parameters if one.name in names}
    sums: dict[int, Row | None] = {
        row: (0.0, 0.0, 0.0) for row, index in enumerate(known.parameters) if index in whole
    }
    for rank in job.ranks:
        parts = _Parts.of(rank, tuple(names))
        for row, total in sums.items():
            if total is not None:
                name = whole[known.parameters[row]]
                other = parts.rows.get((known.steps[row], name))
                copies = max(rank.placements[name].copies, 1)
                sums[row] = None if other is None else _added(total, parts.norms, other, copies)
    lacking = {known.steps[row] for row, total in sums.items() if total is None}
    kept = [row for row, step in enumerate(known.steps) if step not in lacking]
    cells = list(_cells(known, sums, kept))
    return NormTable(
        steps=array("q", (known.steps[row] for row in kept)),
        parameters=array("q", (known.parameters[row] for row in kept)),
        reaches=bytes(known.reaches[row] for row in kept),
        gradients=array("d", (one[0] for one in cells)),
        weights=array("d", (one[1] for one in cells)),
        updates=array("d", (one[2] for one in cells)),
        numels=known.numels,
    )


def _added(total: Row, norms: NormTable, row: int, copies: int) -> Row:
    """Return sums of squares with a rank's part; a sum with an unknown part is unknown."""
    found = (norms.gradients[row], norms.weights[row], norms.updates[row])
    return (
        _sum(total[0], found[0], copies),
        _sum(total[1], found[1], copies),
        _sum(total[2], found[2], copies),
    )


def _sum(total: float, norm: float, copies: int) -> float:
    return NOT_MEASURED if total < 0 or norm < 0 else total + norm * norm / copies


def _cells(known: NormTable, sums: Mapping[int, Row | None], kept: Sequence[int]) -> Iterator[Row]:
    for row in kept:
        total = sums.get(row)
        if total is None:
            yield known.gradients[row], known.weights[row], known.updates[row]
        else:
            yield _root(total[0]), _root(total[1]), _root(total[2])


def _root(square: float) -> float:
    return square if square < 0 else math.sqrt(square)
