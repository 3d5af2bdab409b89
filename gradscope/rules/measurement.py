"""Numbers that rules compare with a limit, and the severity of findings."""

import math
from typing import Literal

from gradscope.frozen import dataclass
from gradscope.recording.records import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number of a finding's evidence, and which way it gets worse.

    Where a rule has several kinds of findings, the limit tells of which kind one is.
    """

    number: str
    """Name of the number in the evidence."""
    limit: str | None = None
    """Name of the limit it crossed in the evidence; None if all findings of the rule have it."""
    worse: Literal["higher", "lower"] = "higher"
    is_logarithm: bool = False
    """Whether it counts powers of ten: then 0.3 more is twice as bad."""

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
    # A negative number becomes greater by coming closer to zero.
    return value * factor if value >= 0 else value / factor


Side = Literal["above", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One comparison of a rule."""

    rule: str
    """Code of the rule."""
    number: str
    """Name of the number, as in the evidence of findings."""
    value: float
    limit: float
    """Limit of the mildest finding."""
    fires: Side = "above"
    """Side of the limit on which the number leads to a finding."""
    subject: str = ""
    """Subject of the measurement: a parameter, a module, a line of the script; empty for the model.
    """
    site: Site | None = None
    """Line that a finding would have."""
    step: int | None = None
    """Step of the training run; None for a recording of one step."""

    @property
    def is_beyond(self) -> bool:
        """Whether the number is on the side of the limit that leads to a finding."""
        return self.value >= self.limit if self.fires == "above" else self.value <= self.limit

    @property
    def distance(self) -> float:
        """Factor between number and limit: 1 at the limit, larger beyond it, NaN if unknown.

        No factor is known between numbers of different sign, nor to a limit of zero or infinity.
        """
        over, under = (
            (self.value, self.limit) if self.fires == "above" else (self.limit, self.value)
        )
        if under > 0 and over >= 0 and math.isfinite(under):
            return over / under
        return under / over if under < 0 and over < 0 and math.isfinite(over) else math.nan
