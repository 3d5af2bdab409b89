"""Healthy code that looks sick: nothing here may be called an error."""

from tests.rules.lookalikes.case import Lookalike, Step
from tests.rules.lookalikes.freezing import FREEZING
from tests.rules.lookalikes.initialisation import INITIALISATION

LOOKALIKES: tuple[Lookalike, ...] = (
    *FREEZING,
    *INITIALISATION,
)

__all__ = ["LOOKALIKES", "Lookalike", "Step"]
