"""The optimizers whose steps a run is made of."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.optimizer import OptimizerFamily


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
