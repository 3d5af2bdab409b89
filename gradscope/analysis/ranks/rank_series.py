"""Losses and gradient norms of each rank by step."""

import math
from collections.abc import Sequence

from gradscope.analysis.losses.step_losses import known_losses
from gradscope.analysis.norms import total_norm
from gradscope.analysis.ranks.job import Rank
from gradscope.frozen import dataclass
from gradscope.recording.norm_table import measured_in, norms_of
from gradscope.recording.records import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeries:
    """Measurements of a rank by step."""

    rank: int
    losses: tuple[tuple[int, float], ...]
    """Steps and their losses."""
    norms: tuple[tuple[int, float], ...]
    """Steps and norms of the gradients that the rank holds, as its optimizer used them."""
    is_part: bool
    """Whether the rank holds only parts of some parameters."""


def rank_series(recordings: Sequence[Recording]) -> tuple[RankSeries, ...]:
    """Return the series of each rank, by rank."""
    ranks = sorted(map(Rank, recordings), key=lambda rank: rank.number)
    return tuple(
        RankSeries(
            rank=rank.number,
            losses=known_losses(rank.recording),
            norms=_norms(rank),
            is_part=any(one.kind == "sharded" for one in rank.placements.values()),
        )
        for rank in ranks
    )


def _norms(rank: Rank) -> tuple[tuple[int, float], ...]:
    squares = ((step, rank.squares("step", step)) for step in rank.steps("step"))
    found = {step: math.sqrt(math.fsum(one.values())) for step, one in squares if one}
    if not rank.recording.is_outline:
        table = norms_of(rank.recording)
        for step in table.distinct_steps():
            rows = table.rows_of(step)
            norm = total_norm(measured_in(table.gradients[rows.start : rows.stop]))
            if norm is not None:
                found[step] = norm
    return tuple(sorted(found.items()))
