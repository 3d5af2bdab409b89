"""Along which dimension the softmaxes of the graph normalise."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxRecord:
    """A softmax or log-softmax in the graph."""

    table: ClassVar[str] = "softmax"
    node: int
    dimension: int
    """Counted from the first, 0."""
