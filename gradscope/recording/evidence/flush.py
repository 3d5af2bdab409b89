"""Which gradients half precision flushed to zero."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedGradient:
    """A parameter's gradient, with the loss as it was and with a larger one."""

    parameter: int
    elements: int
    """How many are not zero when the loss is larger."""
    flushed: int
    """How many of these are zero with the loss as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRecord:
    """A second backward, from the loss times a power of two, beside the first."""

    table: ClassVar[str] = "flush"
    dtype: str
    """The narrowest type through which gradients go."""
    factor: float
    """The largest of those tried with which every gradient stays finite."""
    site: int | None
    """The line that chose the type; None where it is not known."""
    gradients: tuple[FlushedGradient, ...]
    """Of the parameters that have one both times."""

    @property
    def elements(self) -> int:
        """How many gradient elements are not zero when the loss is larger."""
        return sum(one.elements for one in self.gradients)

    @property
    def flushed(self) -> int:
        """How many of these are zero with the loss as it was."""
        return sum(one.flushed for one in self.gradients)
