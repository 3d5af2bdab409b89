"""How far a recording may be from another before that is a regression."""

from dataclasses import dataclass

from gradscope.recording.finding import Severity

DEFAULT_NORM = 0.1
"""bfloat16 moves the norms of a model's gradients by up to 7 %, other threads or another order of a
sum by 1e-5; a term that is missing or counted twice moves them by more."""
DEFAULT_LOSS = 0.1
DEFAULT_COSINE = 0.9
RANK_NORM = 1e-5
"""Allowed relative change of a norm between ranks, where reduced gradients differ only by rounding.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Limits of what passes."""

    norm: float | None = None
    """Allowed relative change of a gradient norm: 0.1 allows factors from 1 / 1.1 to 1.1. None uses
    `DEFAULT_NORM`, or `RANK_NORM` between ranks."""
    loss: float = DEFAULT_LOSS
    """Allowed relative increase of the loss."""
    cosine: float = DEFAULT_COSINE
    """Smallest allowed cosine between stored gradients."""
    fail_level: Severity = "error"
    """The mildest level of a new finding that is a regression."""

    def norm_limit(self, *, of_ranks: bool) -> float:
        """Return how many times a norm may grow or shrink, less one."""
        return self.norm if self.norm is not None else RANK_NORM if of_ranks else DEFAULT_NORM
