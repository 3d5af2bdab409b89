"""Leaves of the graph that require grad and are no parameters of the model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

LeafOrigin = Literal["attribute", "computed", "input", "forward", "late"]
"""`attribute`: kept by a module of the model under an attribute that torch does not register;
`computed`: an attribute holds what was computed of it once, before the forward;
`input`: part of the batch; `forward`: a parameter made anew in every forward; `late`: a parameter
that the first forward gave to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRecord:
    """A tensor into which backward accumulates a gradient that no `parameters()` gives."""

    table: ClassVar[str] = "leaf"
    node: int
    name: str
    """As Python would reach it from the model: `blocks.0.conv.weight`; from the batch: `batch.0`;
    empty where nothing leads to it."""
    origin: LeafOrigin
    numel: int
    owner: int | None
    """The module that keeps it."""
    attribute: str
    """The attribute of the owner in which it is, empty where there is none."""
    container: str
    """The class of what the attribute holds: `list`, `Tensor`."""
    set_aside: bool
    """Whether it is in a module in eval mode while the owner trains."""
    site: int | None
    """The line that gives it to the owner."""
