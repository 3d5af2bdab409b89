"""Weights that stages of a pipeline tie: each holds a copy, which the copies' gradients train."""

from collections.abc import Iterator
from itertools import permutations

from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TiedWeight:
    """A table of embeddings of one stage, and its copy in another, which uses it otherwise."""

    table: str
    table_rank: Rank
    copy: str
    copy_rank: Rank


def tied_weights_apart(job: Job) -> Iterator[TiedWeight]:
    """Yield the tied weights whose copies begin equal and part.

    A matrix counts as a copy of a table if both have the same shape and begin with the same norm,
    both are trained, and its stage looks up no rows in it. Stages that were seeded alike may begin
    with equal tables, but each looks up rows in its own.
    """
    steps = job.common_steps("weight") if job.is_joined and job.is_pipelined else []
    if len(steps) < 2 or job.is_data_parallel or job.averages_weights:
        return
    for one, other in permutations(job.ranks, 2):
        begin, end = one.squares("weight", steps[0]), one.squares("weight", steps[-1])
        for table in sorted(_tables(one) & one.trained_names & begin.keys() & end.keys()):
            for copy in _copies(one, table, other, steps[0]):
                last = other.squares("weight", steps[-1]).get(copy)
                if last is not None and not agree([end[table], last], 2 * AGREEMENT):
                    yield TiedWeight(table, one, copy, other)


def _copies(rank: Rank, table: str, other: Rank, step: int) -> list[str]:
    """Return the parameters of another rank that begin as copies of a table."""
    values = other.squares("weight", step)
    value, shape = rank.squares("weight", step)[table], rank.placements[table].shape
    return [
        name
        for name in sorted((other.trained_names & values.keys()) - _tables(other))
        if other.placements[name].shape == shape
        and value
        and agree([value, values[name]], 2 * AGREEMENT)
    ]


def _tables(rank: Rank) -> set[str]:
    """Return the parameters in which a rank looks up rows."""
    parameters = rank.recording.parameters
    indices = (int(event.subject) for event in rank.events.get("embedded", ()))
    names = {parameters[index].name for index in indices if index < len(parameters)}
    return names & rank.placements.keys()
