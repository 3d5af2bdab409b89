"""Units of a layer that are equal."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SymmetryRecord:
    """A weight some of whose rows are equal, and get equal gradients; of others there is none."""

    table: ClassVar[str] = "symmetry"
    parameter: int
    rows: int
    """Units: rows of a linear layer, output channels of a convolution."""
    alike: int
    """How many have the weights and the gradient of the first unit that gets one, it included."""
    site: int | None = None
    """The line that fills weights with a constant, where there is only one such line."""
