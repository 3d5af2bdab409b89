"""Evidence on the optimizers, the rounding of their updates, and the cost of recording."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import Shape

OptimizerFamily = Literal["sgd", "adaptive", "other"]
"""`adaptive`: divides by the root of a mean of squared gradients, as Adam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A parameter group; numbers are None if it has none of that name."""

    parameters: tuple[int, ...]
    """Parameters of the model, each once."""
    duplicates: tuple[int, ...]
    """Parameters that it lists more than once."""
    learning_rate: float | None
    initial_learning_rate: float | None
    """Start value of a scheduler; None without a scheduler."""
    epsilon: float | None
    momentum: float | None
    weight_decay: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleTensor:
    """A tensor in an optimizer that was meant for the model but is not in it."""

    shape: Shape
    name: str | None
    """Former name in the model."""
    successor: int | None
    """Parameter that replaced it."""
    replaced: int | None
    """Line (a site) that replaced it; None if that was not observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecord:
    """An optimizer: the target's, or another one constructed while the target was loaded."""

    table: ClassVar[str] = "optimizer"
    index: int
    class_name: str
    family: OptimizerFamily
    is_torchs: bool
    """Whether its class is one of torch's own."""
    is_targets: bool
    """Whether it makes the target's steps."""
    site: int | None
    """Line that made it."""
    groups: tuple[GroupRecord, ...]
    later: tuple[int, ...]
    """Parameters that were made after it."""
    stale: tuple[StaleTensor, ...]

    @property
    def parameters(self) -> frozenset[int]:
        """Parameters of the model that it holds."""
        return frozenset(index for group in self.groups for index in group.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitRecord:
    """A training on one batch, undone afterwards."""

    table: ClassVar[str] = "overfit"
    wanted: int
    """Largest number of steps."""
    optimizer: str
    """The optimizer and its learning rate, as `AdamW(lr=0.001)`."""
    learned: float
    """Share of the first loss at which the batch counts as learned."""
    losses: tuple[float, ...]
    """Loss before each step, and after the last."""
    moved: tuple[float | None, ...]
    """Distance that each parameter moved over the norm it had. None if it requires no grad or
    cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOptimizer:
    """An optimizer that a script made, or whose step it called.

    `optimizer` of events is the index of such a record.
    """

    table: ClassVar[str] = "trained_optimizer"
    later_columns: ClassVar[frozenset[str]] = frozenset({"joined"})
    class_name: str
    family: OptimizerFamily
    name: str
    """Variable that holds it, as `optimizer` or `self.opt`; its class if none was found."""
    site: int | None
    """Line that made it; None if it was made before recording started."""
    parameters: tuple[int, ...]
    """Parameters of its groups at its last recorded step."""
    replaced: int | None
    """Index of the last earlier optimizer with one of its parameters."""
    joined: int | None = None
    """Index of the optimizer whose steps include its own: a wrapper, or one that steps in the same
    backward. None if it steps by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedUpdate:
    """The effect of an optimizer's step on one parameter, counted in elements."""

    table: ClassVar[str] = "rounded_update"
    step: int
    optimizer: int
    """Index of its `TrainedOptimizer` record."""
    parameter: int
    moving: int
    """Elements whose gradient was finite and not zero."""
    unchanged: int
    """Elements among these that the step left unchanged, bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCost:
    """The cost of recording a run; a killed process leaves no such record."""

    table: ClassVar[str] = "watch_cost"
    budget: float | None
    """Maximum share of the training's own time; None for no limit."""
    share: float | None
    """Share of the training's own time, first steps included; None if only one step was made."""
    seconds: float
    """Seconds spent."""
    steps: int
    """Number of steps."""
    measured: int
    """Number of steps with measured gradients."""
    captured: int
    """Number of steps captured in detail."""
    repeated: int
    """Number of steps recorded only as repetitions of another."""
