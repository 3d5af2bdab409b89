"""An exception of autograd's that ended a forward or backward."""

from dataclasses import dataclass
from typing import ClassVar, Literal

ErrorKind = Literal["no-graph", "freed", "in-place", "non-scalar", "other"]

PlaceRole = Literal[
    "forward", "inside", "call", "reuse", "freed", "write", "cut", "unrecorded", "switch"
]
"""`forward`: the line that made the node; `inside`: the user's line that ran in backward and
raised; `call`: the user's own call of backward that raised; `reuse`: what took a part of an older
graph; `freed`: the user's backward that went through it before; `write`: into a saved tensor;
`cut`: what left the loss without history; `unrecorded`: what left it so because gradients were
switched off; `switch`: what had switched them off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPlace:
    """A line that takes part in an error."""

    role: PlaceRole
    site: int | None
    operation: str
    """What runs there, as `detach()` or `TanhBackward0`; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An attribute of the model, or a global, that holds a tensor of an earlier step's graph."""

    name: str
    """As `Decoder.state`; a global by its name alone."""
    attribute: str
    """As the code names it: `self.state`, or the global."""
    is_replaced: bool
    """Whether each forward puts another tensor there."""
    is_tended: bool
    """Whether code that did not run deals with it, which may let go of it between the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutogradErrorRecord:
    """An exception of autograd's, and the lines that explain it."""

    table: ClassVar[str] = "autograd_error"
    kind: ErrorKind
    step: int
    """Index of the step that it ended, which as a probing one may not be in the recording: as many
    optimizer steps had been made."""
    exception: str
    """Its class; empty where backward was not called because it would have raised one."""
    message: str
    subject: str
    """What backward started from or could not start from: `loss_fn(output, target)`; empty where
    the user's own backward raised."""
    node: int | None
    """The node (index) whose backward raised, or that backward could not start from."""
    function: str | None
    """The custom function that it belongs to."""
    frozen: int | None
    """How many parameters there are, where none of them requires grad."""
    reset: str | None
    """A method of the model's by whose name it lets go of what it keeps from step to step."""
    carried: tuple[Carried, ...]
    """What holds the part of an earlier step's graph that backward came to, if that is known."""
    places: tuple[ErrorPlace, ...]

    def place(self, role: str) -> ErrorPlace | None:
        """Return the first place of a role, None where there is none."""
        return next((place for place in self.places if place.role == role), None)
