"""Evidence on clipping: the parameters of each clip, and the effect of each method."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScope:
    """A set of parameters that a script clips together.

    `scope` of a clip's event is the index of the set.
    """

    table: ClassVar[str] = "clip_scope"
    parameters: tuple[int, ...]
    """Ascending."""


ClipMethod = Literal["norm", "value", "per-tensor", "adaptive"]
"""How gradients are clipped: `norm`: all by one factor, to a maximum global norm; `value`: each
element; `per-tensor`: each parameter by its own norm; `adaptive`: each unit by the norm of its
weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipTrial:
    """The settings of a clipping report."""

    table: ClassVar[str] = "clip_trial"
    max_norm: float | None
    """Maximum norm, if one was requested."""
    norm_type: float
    value: float
    """Maximum element in clipping by value."""
    adaptive_ratio: float
    """Maximum ratio of gradient to weight norm of a unit in adaptive clipping."""
    asked: tuple[ClipMethod, ...]
    """Methods that were requested; limits of the others may be chosen automatically."""
    applied: ClipMethod | None
    """Method applied to the optimizer's steps; None for no clipping."""
    steps: int
    """Number of requested optimizer steps."""
    batches: int
    """Number of batches to measure after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedGradient:
    """Effect of one method on the gradients of one backward, by parameter."""

    norms: tuple[float | None, ...]
    """Euclidean norms after clipping; None without a gradient."""
    products: tuple[float | None, ...]
    """Inner products with the unclipped gradient."""
    cut: int
    """Number of elements or units that were clipped."""
    of: int
    """Number of all elements or units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPass:
    """The unclipped gradients of one backward."""

    table: ClassVar[str] = "clip_pass"
    made: int
    """Number of optimizer steps before it."""
    batch: int
    """Index of its batch."""
    loss: float | None
    norms: tuple[float | None, ...]
    """By parameter: Euclidean norm of its gradient; None without one."""
    powers: tuple[float | None, ...]
    """The same for the requested norm type; empty if that is Euclidean."""
    torchs_norm: float | None
    """Result of `torch.nn.utils.get_total_norm`, which computes in the gradients' own precision;
    None if it fails."""
    obstacle: str
    """Why it fails; otherwise empty."""
    by_value: ClippedGradient
    adaptive: ClippedGradient
