"""Evidence on values that lead to the loss without the gradient of what they were made from."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import CutKind, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCutRecord:
    """A cut behind parameters that get a gradient another way, and from which the loss is made."""

    table: ClassVar[str] = "path_cut"
    operation: str
    """The call, as in `CutRecord`."""
    kind: CutKind
    site: int | None
    last: int | None
    """Line (a site) of the last operation that still carried a gradient."""
    call: int | None
    """Innermost module call around it; None outside of all."""
    count: int
    """Number of calls on this line that cut something off."""
    parameters: tuple[int, ...]
    """Trainable parameters whose gradient it stops."""
    joins: tuple[int, ...]
    """Nodes of the graph with an input from behind the cut."""
    layer_joins: tuple[int, ...]
    """Joins whose input from behind the cut has passed a layer without a gradient."""
    read_into: tuple[int, ...]
    """Nodes that add or subtract a plain number which was read behind the cut."""
    origins: tuple[TensorRef, ...]
    """Tensors of the graph from which what was cut off had been made, the nearest on each way."""
    sources: int
    """Number of different tensors that were cut off there, 64 at most beside leaves."""
