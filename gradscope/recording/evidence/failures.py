"""What an exception of autograd's, or a number that is not finite, tells of its cause."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import Shape, TensorRef

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


Broken = Literal["NaN", "infinity"]

NonfiniteSource = Literal["operation", "constant", "parameter", "buffer", "batch", "tensor"]
"""What a number that is not finite comes from: an operation on finite numbers, a constant that was
written in (as the -inf of a mask), the model, the batch, or a tensor from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandRecord:
    """The values of a tensor that an operation was given."""

    shape: Shape
    minimum: float
    """Of the finite elements; NaN where there are none."""
    maximum: float
    zeros: int
    nonfinite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteRecord:
    """An operation of the forward that made NaN or infinity, or was first to take it in.

    Looked for only where the loss or a gradient is not finite; in the order of the forward.
    """

    table: ClassVar[str] = "nonfinite"
    index: int
    operation: str
    """As torch's dispatcher knows it: `log`, `_softmax`."""
    site: int | None
    tensor: TensorRef | None
    """The operation's output, where it is part of the graph."""
    makes: Broken
    source: NonfiniteSource
    name: str | None
    """Of the parameter or buffer that is the source."""
    operands: tuple[OperandRecord, ...]
    broken: int
    """How many elements of the output are NaN or infinite."""
    dtype: str
    """Of the output."""
    number: float | None
    """The operation's first plain number, as the exponent of a power."""
    blocked_rows: int
    """Of a softmax: rows that hold -inf alone."""
    because_of: int | None
    """The record (index) that made the infinity of which this operation made NaN."""
    reaches_loss: bool
    """Whether the loss is not finite because of it."""


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


CheckOutcome = Literal["right", "wrong", "chosen", "unchecked"]
"""`chosen`: the function has a gradient of its own choosing, as a straight-through estimator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCheck:
    """The gradient with respect to one input of a custom function, on the inputs that it saw."""

    name: str
    """As the function's forward calls it."""
    dtype: str
    """What it was compared in: `float64`, or `float32` where the function knows no other."""
    elements: int
    """How many were compared."""
    analytical: float
    """Norm of what backward returned for these elements."""
    numerical: float
    """Norm of the central differences."""
    deviation: float
    """Norm of the difference over the greater of the two norms, 0 to 2."""
    factor: float
    """What the numerical gradient must be multiplied by to come nearest to backward's."""
    residual: float
    """What then remains of the deviation: near 0, the factor is all that is wrong."""
    is_constant: bool = False
    """Whether backward returns the same whatever gradient it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFunctionRecord:
    """One custom function, checked in float64 on the inputs that the forward gave it."""

    table: ClassVar[str] = "custom_function"
    name: str
    """The class's."""
    operation: str
    """Of its nodes, as `SwishFunctionBackward`."""
    outcome: CheckOutcome
    reason: str | None
    """Why it was not checked, or what shows that its gradient is chosen."""
    applied: int | None
    """The line that applied it (a site)."""
    backward: int | None
    """The line on which its backward returns."""
    inputs: tuple[InputCheck, ...]
    """Those that were compared."""
