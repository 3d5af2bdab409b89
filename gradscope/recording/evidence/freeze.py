"""Where layers were replaced, and where the user's code freezes parameters."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRecord:
    """A module took the place of another under the same name."""

    table: ClassVar[str] = "replacement"
    module: int
    site: int | None
    """The line that put it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRecord:
    """A line that sets `requires_grad` to False, in a file that makes frozen modules."""

    table: ClassVar[str] = "freeze"
    site: int
