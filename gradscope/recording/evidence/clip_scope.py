"""Which parameters a clip function was given."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipScope:
    """A set of parameters that a script clips together.

    The number `scope` of a clip's event is the set's place among these.
    """

    table: ClassVar[str] = "clip_scope"
    parameters: tuple[int, ...]
    """Ascending."""
