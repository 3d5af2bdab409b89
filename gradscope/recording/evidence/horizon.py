"""How far back in time the gradient of a recurrent layer reaches."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonRecord:
    """A recurrent layer: how strongly its last output depends on its input of each time step."""

    table: ClassVar[str] = "horizon"
    module: int
    """Index of the module."""
    call_site: int | None
    """The line that calls it."""
    norms: tuple[float, ...]
    """By time step: the norm, over batch and features, of the derivative of a random combination
    of the last output's elements with respect to the input of this step."""
    read_from: int
    """The first time step whose output is used as it is; steps before it are remembered only."""

    @property
    def steps(self) -> int:
        """The length of the sequence."""
        return len(self.norms)
