"""Clips: which parameters each was given, and what each method leaves of the gradients."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScope:
    """A set of parameters that a script clips together.

    The number `scope` of a clip's event is the set's place among these.
    """

    table: ClassVar[str] = "clip_scope"
    parameters: tuple[int, ...]
    """Ascending."""


ClipMethod = Literal["norm", "value", "per-tensor", "adaptive"]
"""By what gradients are cut: `norm`: all by one factor, so that their global norm is at most so
much; `value`: each element; `per-tensor`: each parameter's by its own norm; `adaptive`: each unit's
by the norm of its weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipTrial:
    """How the gradients of a target were measured for a report on clipping."""

    table: ClassVar[str] = "clip_trial"
    max_norm: float | None
    """The largest norm, where one was asked for."""
    norm_type: float
    value: float
    """The largest element that clipping by value leaves."""
    adaptive_ratio: float
    """Of a unit's gradient norm to its weight norm, that adaptive clipping leaves."""
    asked: tuple[ClipMethod, ...]
    """The methods that were asked for; of the others' limits some were chosen."""
    applied: ClipMethod | None
    """How the gradients of the optimizer's steps were clipped; None for not at all."""
    steps: int
    """Optimizer steps that were asked for."""
    batches: int
    """Batches that were to be measured after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedGradient:
    """What one method leaves of the gradients of one backward, by parameter."""

    norms: tuple[float | None, ...]
    """Euclidean norms afterwards; None without a gradient."""
    products: tuple[float | None, ...]
    """Inner products with the gradient before."""
    cut: int
    """How many elements, or units, were cut."""
    of: int
    """Of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPass:
    """The gradients of one backward, as nothing has clipped them yet."""

    table: ClassVar[str] = "clip_pass"
    made: int
    """Optimizer steps before it."""
    batch: int
    """Place of its batch among those that were read."""
    loss: float | None
    norms: tuple[float | None, ...]
    """By parameter: the Euclidean norm of its gradient; None without one."""
    powers: tuple[float | None, ...]
    """The same by the type of norm that was asked for; empty where that is the Euclidean."""
    torchs_norm: float | None
    """What `torch.nn.utils.get_total_norm` returns, which computes in the gradients' own precision;
    None where it refuses them."""
    obstacle: str
    """Why it does; empty where it does not."""
    by_value: ClippedGradient
    adaptive: ClippedGradient
