"""How bad a finding is, as a number that can be compared from run to run."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number of a finding's evidence, and which way it gets worse.

    Where a rule has several kinds of findings, the limit tells of which kind one is.
    """

    number: str
    """Name of the number in the evidence."""
    limit: str | None = None
    """The name of the limit it crossed, likewise; None where all findings of the rule have it."""
    worse: Literal["higher", "lower"] = "higher"
    is_logarithm: bool = False
    """Whether it counts powers of ten: twice as bad is then 0.3 more and not twice the number."""

    def is_worse(self, value: float, known: float, factor: float = 1.0) -> bool:
        """Return whether a number is worse than a known one by more than a factor.

        Nothing is worse than NaN, and NaN is worse than every number.
        """
        if math.isnan(value) or math.isnan(known):
            return not math.isnan(known)
        margin = math.log10(factor) if self.is_logarithm else 0.0
        if self.worse == "higher":
            allowed = known + margin if self.is_logarithm else _away(known, factor)
            return value > allowed
        allowed = known - margin if self.is_logarithm else -_away(-known, factor)
        return value < allowed


def _away(value: float, factor: float) -> float:
    """Return a number that is larger by a factor, in the sense of greater."""
    return value * factor if value >= 0 else value / factor
