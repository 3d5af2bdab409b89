"""What learns only under other random numbers than those of the first forward."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrawRecord:
    """Parameters that the first draw left without a gradient, and another one did not."""

    table: ClassVar[str] = "redraw"
    draws: int
    """How many other draws were tried."""
    parameters: tuple[int, ...]
