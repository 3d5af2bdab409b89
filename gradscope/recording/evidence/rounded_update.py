"""What rounding left of a step on parameters in half precision."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedUpdate:
    """What an optimizer's step changed in one parameter, counted in elements."""

    table: ClassVar[str] = "rounded_update"
    step: int
    optimizer: int
    """Its place among the `TrainedOptimizer` records."""
    parameter: int
    moving: int
    """Elements whose gradient was finite and not zero."""
    unchanged: int
    """Of these: elements that the step left as they were, bit for bit."""
