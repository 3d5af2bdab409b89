"""An operation that has perhaps broken gradients, of a step that was not captured."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedBreak:
    """The likeliest operation to have made gradients that are not finite.

    Told from which parameters have such gradients, and from the operations of an earlier step.
    """

    table: ClassVar[str] = "suspected_break"
    operation: str
    """The name of its node."""
    site: int | None
    """Its line, in the earlier step."""
    others: tuple[int, ...]
    """Lines of other operations that may as well have broken them."""
    is_likely: bool
    """Whether one operation alone explains all of them."""
    parameters: tuple[int, ...]
    """Those whose gradients are not finite."""
    matched_step: int
    """The earlier step of the run."""
