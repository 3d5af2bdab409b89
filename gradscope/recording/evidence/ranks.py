"""What one rank of a distributed job knows: who it is, what it holds, what it did with others."""

from typing import ClassVar, Literal

from gradscope.frozen import dataclass

PlacementKind = Literal["replicated", "sharded", "partial", "local"]
"""`replicated`: every rank of a group has the whole parameter. `sharded`: each has a part.
`partial`: each has a term of a sum. `local`: no wrapper says anything about it."""

Moment = Literal["backward", "step", "weight", "rate"]
"""What numbers were measured: gradients after the last backward before a step, gradients that the
step uses, weights before the step, and learning rates of the step's groups."""

Synchronisation = Literal["reduced", "no-sync", "around", "unwrapped"]
"""How a backward treats gradients. `reduced`: DDP averages them. `no-sync`: its forward ran under
`no_sync`. `around`: DDP's forward did not run. `unwrapped`: no DDP model took part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIdentity:
    """The position of a process in its job."""

    table: ClassVar[str] = "rank_identity"
    rank: int
    local_rank: int | None
    """None if the launcher does not say it."""
    world_size: int
    backend: str
    job: str
    """Identifier of the job: torchrun's run id, if it has one, and the address of the rendezvous.
    """
    host: str
    started: float
    """Wall clock when the process group was ready, in seconds since 1970."""
    clock: float
    """Wall clock when the recording began, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedModel:
    """A model that was wrapped for several ranks."""

    table: ClassVar[str] = "wrapped_model"
    kind: str
    """`DDP`, `FSDP1`, `FSDP2` or `TP`."""
    name: str
    """Class of the model."""
    site: int | None
    """Line that wrapped it; None if it was not observed."""
    step: int
    """Number of optimizer steps made before."""
    options: tuple[tuple[str, float], ...]
    """Options and counts by name, such as `broadcast_buffers`."""
    batch_norm: int | None = None
    """Line (a site) that made its first batch normalization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPlacement:
    """How a parameter is spread over the ranks."""

    table: ClassVar[str] = "parameter_placement"
    parameter: int
    """Index of the parameter in the recording."""
    kind: PlacementKind
    placements: tuple[str, ...]
    """Placement for each dimension of the mesh, as `Shard(0)`; empty without a mesh."""
    mesh: tuple[tuple[str, int], ...]
    """Name and size of each dimension of the mesh."""
    shape: tuple[int, ...]
    """Shape of the whole parameter."""
    numel: int
    """Number of elements that this rank holds."""
    is_reduced: bool
    """Whether a DDP model reduces its gradient."""
    copies: int
    """Number of ranks that hold the same elements; 1 if no other does, 0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNumbers:
    """Numbers that ranks compare, at steps that are the same on all of them."""

    table: ClassVar[str] = "rank_numbers"
    step: int
    """Number of optimizer steps made before."""
    moment: Moment
    values: tuple[float | None, ...]
    """Sums of squares by index of the parameter, or learning rates by group; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPass:
    """One of the first backward passes of a rank, with the batch that led to it."""

    table: ClassVar[str] = "rank_pass"
    number: int
    """Number of backward passes before it."""
    step: int
    """Number of optimizer steps made before."""
    synchronisation: Synchronisation
    forward: int | None
    """Line (a site) of the first call of a model since the backward before."""
    backward: int | None
    """Line (a site) of the backward."""
    rows: int | None
    """Length of the first dimension of the model's first input; None if unknown."""
    digest: str | None
    """Digest of the model's tensors; None if they were not read."""
    row_digests: tuple[int, ...] = ()
    """Digest of each of the first rows of the first tensor; empty if they were not read."""
    gathers: tuple[int, ...] = ()
    """Codes of the modules that FSDP2 shards over all ranks, in the order of their first calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvent:
    """An action that a rank took once or more at one line."""

    table: ClassVar[str] = "rank_event"
    kind: str
    site: int | None
    subject: str
    step: int
    """Number of optimizer steps made before the first of them."""
    count: int
    numbers: tuple[tuple[str, float], ...]
    """Numbers of the last of them, by name."""
    related: tuple[int, ...] = ()
    """Other lines (sites) that take part."""
