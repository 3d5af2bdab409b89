"""The optimizers of a recording, what rounding leaves of their updates, and what they cost."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import Shape

OptimizerFamily = Literal["sgd", "adaptive", "other"]
"""`adaptive`: divides by the root of a mean of squared gradients, as Adam."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A parameter group; numbers are None where it has none of that name."""

    parameters: tuple[int, ...]
    """Of the model, each once."""
    duplicates: tuple[int, ...]
    """Those that it lists more than once."""
    learning_rate: float | None
    initial_learning_rate: float | None
    """Which a scheduler starts from; None without a scheduler."""
    epsilon: float | None
    momentum: float | None
    weight_decay: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleTensor:
    """A tensor that an optimizer holds and that was meant for the model, but is not in it."""

    shape: Shape
    name: str | None
    """What it was called in the model."""
    successor: int | None
    """The parameter that has its place now."""
    replaced: int | None
    """The line (a site) that put another in its place; None where that was not watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecord:
    """An optimizer: the target's, or another that was made while the target was loaded."""

    table: ClassVar[str] = "optimizer"
    index: int
    class_name: str
    family: OptimizerFamily
    is_torchs: bool
    """Whether its class is one of torch's own."""
    is_targets: bool
    """Whether it makes the target's steps."""
    site: int | None
    """The line that made it."""
    groups: tuple[GroupRecord, ...]
    later: tuple[int, ...]
    """Parameters that were made after it."""
    stale: tuple[StaleTensor, ...]

    @property
    def parameters(self) -> frozenset[int]:
        """Those of the model that it holds."""
        return frozenset(index for group in self.groups for index in group.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedOptimizer:
    """An optimizer that a script made, or whose step it called.

    Events and their `optimizer` name it by its place among these.
    """

    table: ClassVar[str] = "trained_optimizer"
    later_columns: ClassVar[frozenset[str]] = frozenset({"joined"})
    class_name: str
    family: OptimizerFamily
    name: str
    """The variable that holds it, as `optimizer` or `self.opt`; its class where none was found."""
    site: int | None
    """The line that made it; None where it was made before the script was watched."""
    parameters: tuple[int, ...]
    """Those of its groups, by the time of its last step that was recorded."""
    replaced: int | None
    """The place of the optimizer that was made last before it over one of its parameters."""
    joined: int | None = None
    """The place of the optimizer whose steps its own are part of: which wraps it, or steps in the
    same backward. None where it steps by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedUpdate:
    """What an optimizer's step changed in one parameter, counted in elements."""

    table: ClassVar[str] = "rounded_update"
    step: int
    optimizer: int
    """Its place among the `TrainedOptimizer` records."""
    parameter: int
    moving: int
    """Elements whose gradient was finite and not zero."""
    unchanged: int
    """Of these: elements that the step left as they were, bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCost:
    """The cost of watching a run; a killed process leaves no such record."""

    table: ClassVar[str] = "watch_cost"
    budget: float | None
    """The share of the training's own time that watching may take; None for no limit."""
    share: float | None
    """The share that it took, first steps included; None where no step followed the first."""
    seconds: float
    """That it took."""
    steps: int
    """Number of steps."""
    measured: int
    """Steps whose gradients were measured."""
    captured: int
    """Steps that were captured, tensor by tensor."""
    repeated: int
    """Steps of which nothing was recorded but that they made the same calls as another."""
