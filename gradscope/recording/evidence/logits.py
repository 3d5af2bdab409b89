"""Evidence on logits: attention scores, outputs before a loss, choices of routers."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import TensorRef

LogitKind = Literal["attention", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRecord:
    """The logits of one softmax, or of a loss function with a softmax in it."""

    table: ClassVar[str] = "logits"
    tensor: TensorRef
    """Output of the softmax, the attention or the loss function."""
    kind: LogitKind
    largest: tuple[float, ...]
    """Largest magnitude of a logit that is not masked: by head, or one number for all."""
    log_normaliser: float
    """For outputs, the mean over rows of log Z, the logarithm of the sum of exponentials. NaN for
    attention."""
    rows: int
    """Number of rows that were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRecord:
    """A choice of the largest of several scores in every row, as routers choose experts."""

    table: ClassVar[str] = "router"
    tensor: TensorRef
    """The largest scores."""
    chosen: int
    """Number of experts that are chosen per row."""
    rows: int
    shares: tuple[float, ...]
    """By expert: share of all choices."""
    entropy: float
    """Mean entropy of the scores of a row, over that of equal scores: 0 to 1."""
