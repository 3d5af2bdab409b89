"""Whether the loss depends on parameters to which no gradient came."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceRecord:
    """Parameters that were given other values, and whether the loss was another then."""

    table: ClassVar[str] = "influence"
    parameters: tuple[int, ...]
    changes_loss: bool
