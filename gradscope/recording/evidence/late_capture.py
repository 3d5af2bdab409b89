"""A backward that was captured from its beginning on, after a forward that nobody watched."""

from dataclasses import dataclass
from typing import ClassVar, Literal

LineSource = Literal["watched", "matched", "module"]
"""How the line of an operation is known: it was seen when it ran; an earlier step, which was
captured, had the same operations; or only the module that owns its parameters is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCapture:
    """How a backward came to be captured whose forward was not, and what lines it has."""

    table: ClassVar[str] = "late_capture"
    lines: LineSource
    matched_step: int | None
    """The step of the run whose lines it has; None where no step is like it."""
    matched_nodes: int
    nodes: int
    """Operations of the graph, of which so many have a line."""
    unsure: tuple[int, ...]
    """Nodes that may as well be the first whose result is not finite, as their results are saved
    nowhere; empty where the first is certain."""
