"""Evidence on masks, positions and padding of sequences."""

from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.records import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRowRecord:
    """A table of encodings of which each example of a batch gets a row, and its positions one."""

    table: ClassVar[str] = "position_row"
    site: int | None
    examples: int
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedWeightRecord:
    """Weights of attention on positions that a mask should hide."""

    table: ClassVar[str] = "masked_weight"
    site: int | None
    """Line of the mask."""
    softmax: int | None
    """Line of the softmax."""
    way: str
    """How the mask meets the scores: `fill`, `product` or `sum`."""
    weight: float | None
    """Mean of the weight, 0 to 1, that the softmax gives them, over the rows that hide some. None
    for fused attention."""
    filled: float
    """Score that the mask gives them, or adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedReadRecord:
    """A read of one position of every sequence that is padding in some of them."""

    table: ClassVar[str] = "padded_read"
    site: int | None
    result: TensorRef
    sequences: int
    padded: int
    """Number of sequences that end in padding."""
    share: float
    """Mean share of a sequence, 0 to 1, that is padding."""
