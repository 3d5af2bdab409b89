"""Parameters that look as if they were meant as one."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRecord:
    """Two parameters that require grad and are different objects."""

    table: ClassVar[str] = "twin"
    first: int
    second: int
    alike: Literal["storage", "values"]
    """Whether they share their memory, or an embedding and an output layer hold equal numbers."""
    site: int | None
    """The line that made them so, where one was found."""
