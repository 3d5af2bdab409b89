"""Where the forward's numbers stopped being finite."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import Shape, TensorRef

Broken = Literal["NaN", "infinity"]

NonfiniteSource = Literal["operation", "constant", "parameter", "buffer", "batch", "tensor"]
"""What a number that is not finite comes from: an operation on finite numbers, a constant that was
written in (as the -inf of a mask), the model, the batch, or a tensor from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandRecord:
    """The values of a tensor that an operation was given."""

    shape: Shape
    minimum: float
    """Of the finite elements; NaN where there are none."""
    maximum: float
    zeros: int
    nonfinite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteRecord:
    """An operation of the forward that made NaN or infinity, or was first to take it in.

    Looked for only where the loss or a gradient is not finite; in the order of the forward.
    """

    table: ClassVar[str] = "nonfinite"
    index: int
    operation: str
    """As torch's dispatcher knows it: `log`, `_softmax`."""
    site: int | None
    tensor: TensorRef | None
    """The operation's output, where it is part of the graph."""
    makes: Broken
    source: NonfiniteSource
    name: str | None
    """Of the parameter or buffer that is the source."""
    operands: tuple[OperandRecord, ...]
    broken: int
    """How many elements of the output are NaN or infinite."""
    dtype: str
    """Of the output."""
    number: float | None
    """The operation's first plain number, as the exponent of a power."""
    blocked_rows: int
    """Of a softmax: rows that hold -inf alone."""
    because_of: int | None
    """The record (index) that made the infinity of which this operation made NaN."""
    reaches_loss: bool
    """Whether the loss is not finite because of it."""
