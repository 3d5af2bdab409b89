"""The tensors of the batch."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The shapes of the batch's tensors, in the order in which they are met."""

    table: ClassVar[str] = "batch"
    shapes: tuple[Shape, ...]

    @property
    def is_one_example(self) -> bool:
        """Whether every tensor that has dimensions has a first one of 1."""
        leading = {shape.dims[0] for shape in self.shapes if shape.dims}
        return leading == {1}
