"""The result of training on one batch: learned, still falling, stuck or diverged."""

import math
from typing import Literal, Self

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import OverfitRecord
from gradscope.recording.records import Recording

Outcome = Literal["learned", "still falling", "stuck", "diverged"]

_RISEN = 2.0
"""Multiple of the first loss above which the training diverged."""
_PROGRESS = 0.01
"""A loss is stuck if it falls by less than this share over half of all steps."""
_STILL = 1e-6
"""Parameters that moved by less than this share of their norm count as unmoved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit:
    """A training on one batch, and its result."""

    record: OverfitRecord
    outcome: Outcome
    since: int | None
    """Step after which the loss made no progress; None unless it is stuck."""
    still: tuple[int, ...]
    """Parameters that require grad and did not move."""

    @classmethod
    def of(cls, recording: Recording) -> Self | None:
        """Return the training in a recording; None if there is none."""
        for record in recording.evidence_of(OverfitRecord):
            outcome = _outcome(record)
            return cls(
                record=record,
                outcome=outcome,
                since=_last_progress(record.losses) if outcome == "stuck" else None,
                still=tuple(
                    index
                    for index, moved in enumerate(record.moved)
                    if moved is not None and moved < _STILL
                ),
            )
        return None

    @property
    def steps(self) -> int:
        """Number of optimizer steps."""
        return len(self.record.losses) - 1


def _outcome(record: OverfitRecord) -> Outcome:
    losses = record.losses
    first, last = losses[0], losses[-1]
    # A negative loss, as a log-likelihood, has no multiple that is worse: it may rise by 1.
    if not math.isfinite(last) or last > _RISEN * max(first, 0.0) + (1.0 if first <= 0 else 0.0):
        return "diverged"
    # A loss that may be negative has no zero to come near to.
    if 0 <= last <= record.learned * first:
        return "learned"
    return "stuck" if _last_progress(losses) <= (len(losses) - 1) / 2 else "still falling"


def _last_progress(losses: tuple[float, ...]) -> int:
    """Return the last step at which the lowest loss so far had fallen by a share of itself."""
    last, mark, lowest = 0, losses[0], losses[0]
    for step, loss in enumerate(losses):
        lowest = min(lowest, loss)
        if mark - lowest > _PROGRESS * abs(mark):
            last, mark = step, lowest
    return last
