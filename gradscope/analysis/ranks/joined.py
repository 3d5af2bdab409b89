"""Joins the ranks of a job into one recording, whose norms are those of whole parameters."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gradscope.analysis.norms import whole_square
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.analysis.ranks.whole_parameters import (
    WholeParameter,
    whole_parameters,
    with_parameters,
)
from gradscope.recording.norm_table import NOT_MEASURED, REACHES, NormTable, norms_of
from gradscope.recording.records import EventRecord, Recording

_Row = tuple[int, int, int, float, float, float]
"""Step, parameter, reach, and norms of gradient, weight and update."""


def joined_recording(recordings: Sequence[Recording]) -> Recording:
    """Return the recording of the first rank, with the parameters and norms of the whole job.

    The parts of sharded parameters are joined, and parameters that only other ranks hold, as later
    stages of a pipeline, are added. Both are known in the steps that all their ranks measured;
    norms of other steps are left out. Where nothing is sharded and all ranks hold the same
    parameters, the first rank's norms are those of the job.

    Args:
        recordings: Recordings of the ranks, by rank.
    """
    job = Job.of(recordings)
    first = job.first.recording
    if not is_joinable(job):
        return first
    wholes = whole_parameters(job)
    joined = {one.name for one in wholes if one.is_sharded and one.is_complete}
    found = with_parameters(first, wholes, joined)
    numels = {one.index: one.numel for one in found.parameters}
    return replace(
        found,
        parameter_stats=_table(job, wholes, numels),
        events=tuple(map(_without_norm, first.events)),
    )


def _without_norm(event: EventRecord) -> EventRecord:
    """Return an event without the norm of what one rank holds of the step's gradients."""
    if event.kind != "step":
        return event
    numbers = tuple((name, value) for name, value in event.numbers if name != "norm")
    return replace(event, numbers=numbers)


def is_joinable(job: Job) -> bool:
    """Return whether norms of all ranks are joined: of parts, of pipeline stages, or of ZeRO's."""
    if not job.is_joined or job.missing or any(r.recording.is_outline for r in job.ranks):
        return False
    wholes = whole_parameters(job)
    if len(wholes) > len(job.first.recording.parameters) or any(
        one.is_sharded and one.is_complete for one in wholes
    ):
        return True
    # With ZeRO, the optimizer of each rank steps parameters of its own.
    measured = [frozenset(norms_of(rank.recording).parameters) for rank in job.ranks]
    return any(one - measured[0] for one in measured[1:])


class _Norms:
    """The norms of a rank."""

    def __init__(self, rank: Rank) -> None:
        self.table = norms_of(rank.recording)
        pairs = zip(self.table.steps, self.table.parameters, strict=True)
        self.rows = {pair: row for row, pair in enumerate(pairs)}
        self.steps = frozenset(self.table.steps)

    def of(self, row: int) -> tuple[float, float, float]:
        """Return the norms of gradient, weight and update."""
        table = self.table
        return table.gradients[row], table.weights[row], table.updates[row]


def _table(job: Job, wholes: Sequence[WholeParameter], numels: Mapping[int, int]) -> NormTable:
    """Return the norms of whole parameters, in the steps that all ranks measured."""
    norms = {rank.number: _Norms(rank) for rank in job.ranks}
    steps = sorted(frozenset.intersection(*(one.steps for one in norms.values())))
    rows: list[_Row] = []
    for step in steps:
        found = [_row(step, index, one, norms) for index, one in enumerate(wholes)]
        rows += [row for row in found if row is not None]
    columns = list(zip(*rows, strict=True)) or [()] * 6
    return NormTable(
        steps=array("q", columns[0]),
        parameters=array("q", columns[1]),
        reaches=bytes(columns[2]),
        gradients=array("d", columns[3]),
        weights=array("d", columns[4]),
        updates=array("d", columns[5]),
        numels=numels,
    )


def _row(step: int, index: int, whole: WholeParameter, norms: Mapping[int, _Norms]) -> _Row | None:
    """Return the norms of a parameter in a step; None if a rank did not measure it."""
    needs_all = whole.is_sharded and whole.is_complete
    holders = whole.with_elements if needs_all else whole.holders
    found = [
        (known, row)
        for rank, position in holders
        if (row := (known := norms[rank.number]).rows.get((step, position))) is not None
    ]
    if not found or (needs_all and len(found) < len(holders)):
        return None
    used = found if needs_all else found[:1]
    parts = [known.of(row) for known, row in used]
    if needs_all:
        parts += [(0.0, 0.0, 0.0)] * (len(whole.holders) - len(holders))
    reaches = [known.table.reaches[row] for known, row in used]
    gradient, weight, update = (_joined(values, whole) for values in zip(*parts, strict=True))
    return step, index, _furthest(reaches), gradient, weight, update


def _joined(norms: Sequence[float], whole: WholeParameter) -> float:
    """Return the norm of a parameter from those of its parts; unknown with an unknown one."""
    if len(norms) == 1 or whole.placement is None:
        return norms[0]
    if any(norm < 0 for norm in norms):
        return NOT_MEASURED
    return math.sqrt(whole_square([norm * norm for norm in norms], whole.placement))


def _furthest(reaches: Sequence[int]) -> int:
    """Return how far backward reached: a part may be zero by chance."""
    reached = REACHES.index("gradient")
    return reached if reached in reaches else reaches[0]
