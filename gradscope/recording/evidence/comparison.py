"""What a loss was computed of: the two tensors that one call compares."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import Shape, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A call of a loss function, or a difference or product whose operands broadcast each other.

    Only calls whose result leads to the loss.
    """

    table: ClassVar[str] = "comparison"
    operation: str
    """As torch calls it: `mse_loss`, `sub`, `mul`."""
    site: int | None
    left: Shape
    """The first operand, of a loss function the prediction."""
    right: Shape
    left_tensor: TensorRef | None
    """Where it is in the graph; None for data."""
    right_tensor: TensorRef | None
    result: TensorRef
