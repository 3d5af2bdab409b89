"""Shapes of the ranks of a distributed job."""

from typing import Annotated

from gradscope.analysis.ranks.job import RankState
from gradscope.report.json.parts import Where
from gradscope.report.json.shape import Count, Given, Of, Positive, Shape


class Rank(Shape):
    """A rank."""

    rank: Count
    local_rank: int | None
    host: str
    state: Annotated[
        RankState,
        "consequence: it failed because another rank did not answer; lost: it has no ending.",
    ]
    ended: Annotated[str, Of("what")]
    location: Where
    steps: int
    backward_passes: Annotated[int, Of("passes")]
    loss: float | None


class GlobalNorm(Shape):
    """A global norm."""

    step: int
    norm: float
    partial: Annotated[tuple[str, ...], "Parameters left out, as each rank holds a term of a sum."]


class FirstFailure(Shape):
    """The rank that failed first."""

    rank: int
    what: str
    location: Where


class Ranks(Shape):
    """A distributed job, as far as its ranks were recorded."""

    world_size: Annotated[Positive, "Number of ranks, recorded or not."]
    backend: str
    strategy: Annotated[Given, "How the model is spread, as DDP."]
    recorded: Annotated[tuple[Rank, ...], Of("rows"), "The recorded ranks, by number."]
    missing: Annotated[tuple[int, ...], "Ranks without a recording."]
    global_norms: Annotated[
        tuple[GlobalNorm, ...],
        Of("norms"),
        "Gradient norms joined from all ranks: sharded parameters add up, replicated ones count "
        "once.",
    ]
    sharded_parameters: Annotated[int, Of("sharded")]
    is_joined: Annotated[
        bool,
        Of("is_joinable"),
        "Whether norms of sharded parameters are joined from all ranks. Otherwise they are of "
        "the part that the first recorded rank holds.",
    ]
    first_failure: Annotated[FirstFailure | None, Of("failure")]
