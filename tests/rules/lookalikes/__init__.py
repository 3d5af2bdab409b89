"""Healthy code that looks sick: nothing here may be called an error."""

from tests.rules.lookalikes.case import Lookalike, Step
from tests.rules.lookalikes.estimators import ESTIMATORS
from tests.rules.lookalikes.freezing import FREEZING
from tests.rules.lookalikes.functions import FUNCTIONS
from tests.rules.lookalikes.generative import GENERATIVE
from tests.rules.lookalikes.initialisation import INITIALISATION
from tests.rules.lookalikes.objectives import OBJECTIVES
from tests.rules.lookalikes.selections import SELECTIONS
from tests.rules.lookalikes.sequences import SEQUENCES
from tests.rules.lookalikes.structures import STRUCTURES

LOOKALIKES: tuple[Lookalike, ...] = (
    *FREEZING,
    *INITIALISATION,
    *ESTIMATORS,
    *FUNCTIONS,
    *SEQUENCES,
    *SELECTIONS,
    *GENERATIVE,
    *OBJECTIVES,
    *STRUCTURES,
)

__all__ = ["LOOKALIKES", "Lookalike", "Step"]
