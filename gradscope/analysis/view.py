"""What of a report a reader wants to see."""

from dataclasses import dataclass
from typing import Literal

TensorChoice = Literal["none", "top", "all"]
SortKey = Literal["order", "name", "norm", "ratio", "depth"]
"""`order` is that of the forward; `ratio` is gradient norm over weight norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What a reader wants to see; `json` and `jsonl` hold everything, whatever is asked for."""

    tensors: TensorChoice = "top"
    """Which tensors are listed: none, the ones worth looking at, or all."""
    sort: SortKey = "order"
    top: int = 5
    """How many of the largest and of the smallest."""
    module: str | None = None
    """Only this module and what lies below it."""
    depth: int | None = None
    """Fold modules deeper than this below the model or `module`."""
    can_save: bool = False
    """Whether the command at hand has `--save`."""
