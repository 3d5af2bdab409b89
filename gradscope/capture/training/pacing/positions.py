"""Positions in known sequences of calls."""

from dataclasses import dataclass, field

from gradscope.capture.training.event_log import Event
from gradscope.capture.training.gradient_state import States

Key = tuple[str, int, int, int]
"""Kind, code (`id`) and instruction of the call, and a detail that separates calls there."""


@dataclass(slots=True, eq=False)
class Position:
    """A position in a sequence of calls: the calls before it, and the possible next ones."""

    events: tuple[Event, ...] = ()
    """Events of the call before this position."""
    before: "Position | None" = None
    key: Key | None = None
    """Key of the call before this position."""
    next: dict[Key, "Position"] = field(default_factory=dict)
    states: States | None = None
    """States of the gradients."""
    has_loss: bool = False
    """Whether the call is a backward from a readable number."""
    number: int = 0
    """Sequence number at the last such call."""
    step: int | None = None
    """The last recorded step whose sequence ends here; None if none does."""
    pattern: int = -1
    """Index of the sequence that ends here."""
    by_hand: "Position | None" = None
    """End of the sequence, if the script changes its weights itself after this call."""
    following: "Position | None" = None
    """Start of the step after a sequence, once such a step has repeated another."""


def follows_grad(here: Position | None, key: Key) -> bool:
    """Return whether a call of `autograd.grad` is in the series that leads to a position."""
    while here is not None and here.key is not None and here.key[0] == "grad":
        if here.key == key:
            return True
        here = here.before
    return False


def path_to(here: Position) -> list[Position]:
    """Return the calls of a sequence up to a position, in order."""
    path: list[Position] = []
    step: Position | None = here
    while step is not None and step.before is not None:
        path.append(step)
        step = step.before
    path.reverse()
    return path


def has_read_loss(position: Position, event: Event) -> bool:
    """Return whether an event has a loss that is read in each step."""
    return position.has_loss and event.kind == "backward"


def is_unseen(event: Event) -> bool:
    """Return whether an event happened outside of observed calls."""
    if event.kind == "step":
        return bool(event.numbers.get("manual"))
    return event.kind == "zero" and event.location.code is None and event.optimizer is None


def detail_of(event: Event) -> int:
    """Return the detail that separates calls of an event's kind at the same location."""
    if event.kind in ("backward", "grad"):
        numbers = event.numbers
        return 2 * int(bool(numbers.get("retain"))) + int(bool(numbers.get("create")))
    return -1 if event.optimizer is None else event.optimizer
