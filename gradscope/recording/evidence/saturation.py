"""How much of an activation's output was at the ends of its range."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationRecord:
    """One call of sigmoid, tanh or softmax."""

    table: ClassVar[str] = "saturation"
    tensor: TensorRef
    """The activation's output."""
    operation: str
    """`sigmoid`, `tanh` or `softmax`."""
    elements: int
    """Elements, for softmax rows: those with more than one entry that is not masked."""
    saturated: int
    """Elements whose derivative is below 5 % of its maximum, or rows with an entry above .99."""
