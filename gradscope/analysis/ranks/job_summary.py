"""Facts on a job and its ranks for reports."""

import math
from collections.abc import Sequence

from gradscope.analysis.losses import known_losses
from gradscope.analysis.norms import GlobalNorm, global_norms, total_norm
from gradscope.analysis.ranks.job import Job, Rank, RankEnding, RankState, endings, first_failure
from gradscope.analysis.ranks.joined import is_joinable
from gradscope.frozen import dataclass
from gradscope.recording.norm_table import measured_in, norms_of
from gradscope.recording.records import Recording, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A rank of a job."""

    rank: int
    local_rank: int | None
    host: str
    state: RankState
    what: str
    """Description of how it ended."""
    site: Site | None
    """Line of its exception, or of its last event if the rank was lost."""
    steps: int
    """Number of optimizer steps."""
    passes: int
    """Number of backward passes."""
    loss: float | None
    """Last loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job, as far as its ranks were recorded."""

    world_size: int
    backend: str
    job: str
    strategy: str
    """How the model is distributed, as `DDP` or `FSDP2 over 4`; empty if unknown."""
    is_joinable: bool
    """Whether norms of parameters are joined from all ranks: of parts, or of pipeline stages."""
    rows: tuple[RankRow, ...]
    """Recorded ranks, by number."""
    missing: tuple[int, ...]
    """Ranks without a recording."""
    norms: tuple[GlobalNorm, ...]
    """Global gradient norms that the steps used, joined from all ranks."""
    sharded: int
    """Number of parameters of which each rank holds only a part."""
    failure: RankEnding | None
    """The rank that failed first; None if none did."""
    versions: tuple[str, ...]
    """Versions of gradscope that recorded the ranks."""
    outlines: int
    """Number of ranks that only the rules about ranks judge, because other ranks are alike."""

    @property
    def is_joined(self) -> bool:
        """Whether several ranks were recorded."""
        return len(self.rows) > 1

    @property
    def title(self) -> str:
        """Title of the job, as `rank 1 of 2 · DDP` or `2 ranks · DDP`."""
        if not self.is_joined and self.world_size > 1:
            count = f"rank {self.rows[0].rank} of {self.world_size}"
        elif self.missing:
            count = f"{len(self.rows)} of {self.world_size} ranks"
        else:
            count = f"{self.world_size} rank{'s' if self.world_size > 1 else ''}"
        return " · ".join(text for text in (count, self.strategy, self.backend) if text)


def job_summary(recordings: Sequence[Recording]) -> JobSummary | None:
    """Return the job of some recordings; None if the process was in no process group."""
    job = Job.of(recordings)
    identity = job.first.identity
    if identity is None:
        return None
    return JobSummary(
        world_size=job.world_size,
        backend=identity.backend,
        job=identity.job,
        strategy=strategy_text(job),
        is_joinable=is_joinable(job),
        rows=tuple(
            _row(rank, ending) for rank, ending in zip(job.ranks, endings(job), strict=True)
        ),
        missing=job.missing,
        norms=tuple(global_norms(job, "step")),
        sharded=sum(one.kind == "sharded" for one in job.first.placements.values()),
        failure=first_failure(job),
        versions=tuple(dict.fromkeys(rank.recording.version for rank in job.ranks)),
        outlines=sum(rank.recording.is_outline for rank in job.ranks),
    )


def strategy_text(job: Job) -> str:
    """Return how the model is spread, with the number of ranks that share it."""
    sizes = _shard_sizes(job)
    return " + ".join(
        f"{kind} over {sizes[kind]}" if sizes.get(kind, 1) > 1 else kind
        for kind in job.strategy.split(" + ")
    )


def _shard_sizes(job: Job) -> dict[str, int]:
    """Return the number of parts into which each kind of sharding divides parameters."""
    names = job.strategy.split(" + ")
    fully = next((name for name in names if name.startswith("FSDP")), None)
    found: dict[str, int] = {}
    for one in job.first.placements.values():
        if one.kind == "sharded" and not one.mesh and fully is not None:
            # FSDP1 knows no mesh: what is not a copy is a part.
            found[fully] = job.world_size // max(one.copies, 1)
        split = [
            size
            for (_, size), text in zip(one.mesh, one.placements, strict=True)
            if text.startswith(("Shard", "_Strided"))
        ]
        if "TP" in names and split and (fully is None or len(split) > 1):
            # Tensor parallelism has the last dimension of the mesh.
            found["TP"] = max(found.get("TP", 1), split.pop())
        if fully is not None and split:
            found[fully] = max(found.get(fully, 1), math.prod(split))
    return found


def _row(rank: Rank, ending: RankEnding) -> RankRow:
    identity = rank.identity
    losses = known_losses(rank.recording)
    return RankRow(
        rank=rank.number,
        local_rank=None if identity is None else identity.local_rank,
        host="" if identity is None else identity.host,
        state=ending.state,
        what=ending.what,
        site=ending.site,
        steps=rank.step_count,
        passes=rank.backward_count,
        loss=losses[-1][1] if losses else None,
    )


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
