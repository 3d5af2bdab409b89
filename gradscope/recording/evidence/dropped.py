"""Parameters whose use is dropped inside the model's own forward."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecord:
    """Parameters on which neither the loss nor anything that the model returned depends."""

    table: ClassVar[str] = "dropped"
    parameters: tuple[int, ...]
