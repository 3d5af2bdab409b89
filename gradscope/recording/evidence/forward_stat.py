"""What the forward's tensors held."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardStat:
    """The values of a tensor of the first step's graph; views of another tensor have none."""

    table: ClassVar[str] = "forward_stat"
    tensor: TensorRef
    numel: int
    norm: float
    """Euclidean norm. NaN or infinite when an element is."""
    minimum: float
    """Of the finite elements; NaN where there are none."""
    maximum: float
    zeros: int
    """How many elements are exactly zero."""
    nonfinite: int
    """How many elements are NaN or infinite."""

    @property
    def rms(self) -> float:
        """Root mean square over all elements; NaN for an empty tensor."""
        return self.norm / self.numel**0.5 if self.numel else float("nan")
