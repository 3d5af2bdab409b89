"""A number that a rule compared with a limit, whether or not it led to a finding."""

import math
from dataclasses import dataclass
from typing import Literal

from gradscope.recording.records import Site

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
    """What was measured: a parameter, a module, a line of the script; empty for the model."""
    site: Site | None = None
    """Line that a finding would point at."""
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
