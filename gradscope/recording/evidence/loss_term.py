"""What each named term of the loss does to the parameters."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTermRecord:
    """The gradient of one term of the loss, with the weight that the term has in it."""

    table: ClassVar[str] = "loss_term"
    name: str
    """As the target names it."""
    site: int | None
    """The line that computed it."""
    value: float
    weight: float
    """Derivative of the loss with respect to the term."""
    norm: float
    """Of the term's gradient over all parameters, times its weight."""
    parameters: tuple[int, ...]
    """Those to which it gives a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPairRecord:
    """How the gradients of two terms lie to each other, over the parameters that both reach."""

    table: ClassVar[str] = "term_pair"
    first: int
    """Its place among the terms."""
    second: int
    first_norm: float
    second_norm: float
    cosine: float
    """NaN where one of the norms is zero."""
    parameters: tuple[int, ...]
