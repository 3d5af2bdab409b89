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


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedMaskRecord:
    """A mask of attention that hides all tokens of a batch and leaves its padding visible."""

    table: ClassVar[str] = "inverted_mask"
    site: int | None
    """Line that made the mask; otherwise the line of the attention."""
    used: int | None
    """Line of the attention."""
    visible: int
    """Number of keys that are visible, all of them padding."""
    hidden: int
    """Number of tokens that are hidden."""
    token: int
    """Token of the padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAnswerRecord:
    """A loss whose targets are tokens that the model sees where it is to predict them."""

    table: ClassVar[str] = "seen_answer"
    site: int | None
    operation: str
    """torch's name of the loss, or of what chooses from logarithms: `gather`, `mul`."""
    mixer: int | None
    """Line of the attention or the recurrent layer over the tokens."""
    call: int | None
    """Call of the module around that line."""
    ahead: int
    """1 if the targets are the next tokens, 0 if they are those at the position itself."""
    targets: int
    """Number of targets that count, of some sequences."""
    seen: int
    """Number of them that are visible."""
