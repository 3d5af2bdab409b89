"""Where the user's code initialised parameters."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialisationRecord:
    """A parameter that a function of `torch.nn.init` filled, not only where its layer was made."""

    table: ClassVar[str] = "initialisation"
    parameter: int
    site: int
    """The line that called it last."""
    function: str
    """As `normal_`."""
