"""What the optimizers hold."""

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
