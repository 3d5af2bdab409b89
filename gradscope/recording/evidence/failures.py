"""Evidence on exceptions of autograd and on non-finite values."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from gradscope.frozen import dataclass
from gradscope.recording.records import Shape, TensorRef

ErrorKind = Literal["no-graph", "freed", "in-place", "non-scalar", "other"]

PlaceRole = Literal[
    "forward", "inside", "call", "reuse", "freed", "write", "cut", "unrecorded", "switch"
]
"""`forward`: the line that made the node; `inside`: the user's line that raised in backward;
`call`: the user's own call of backward that raised; `reuse`: the line that used a part of an older
graph; `freed`: the user's earlier backward through it; `write`: an in-place write to a saved
tensor; `cut`: the call that left the loss without history; `unrecorded`: the same while gradients
were disabled; `switch`: the line that disabled them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLocation:
    """A line that contributes to an error."""

    role: PlaceRole
    site: int | None
    operation: str
    """Operation on the line, as `detach()` or `TanhBackward0`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedHistory:
    """An attribute of the model, or a global, that holds a tensor of an earlier step's graph."""

    name: str
    """Class and attribute, as `Decoder.state`; a global by its name alone."""
    attribute: str
    """Name in the code: `self.state`, or the global."""
    is_replaced: bool
    """Whether each forward replaces the tensor."""
    is_tended: bool
    """Whether code that did not run handles it, and may detach it between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutogradErrorRecord:
    """An exception of autograd, and the lines that explain it."""

    table: ClassVar[str] = "autograd_error"
    columns: ClassVar[Mapping[str, str]] = {"locations": "places"}
    kind: ErrorKind
    step: int
    """Index of the step that it ended: the number of optimizer steps before. A probe step may not
    be in the recording."""
    exception: str
    """Class of the exception; empty if backward was not called because it would have raised."""
    message: str
    subject: str
    """Tensor from which backward started or could not start: `loss_fn(output, target)`; empty if
    the user's own backward raised."""
    node: int | None
    """Node (index) whose backward raised, or from which backward could not start."""
    function: str | None
    """Name of the custom function."""
    frozen: int | None
    """Number of parameters, if none requires grad."""
    reset: str | None
    """A method of the model whose name suggests that it resets the state between steps."""
    carried: tuple[CarriedHistory, ...]
    """References to the part of an earlier step's graph that backward reached, if known."""
    locations: tuple[ErrorLocation, ...]

    def location(self, role: str) -> ErrorLocation | None:
        """Return the first line of a role, None if there is none."""
        return next((one for one in self.locations if one.role == role), None)


Broken = Literal["NaN", "infinity"]

NonfiniteSource = Literal["operation", "constant", "parameter", "buffer", "batch", "tensor"]
"""Source of a non-finite value: an operation on finite values, a constant (such as the -inf of a
mask), the model, the batch, or another tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandRecord:
    """The values of an operand."""

    shape: Shape
    minimum: float
    """Minimum of the finite elements; NaN if there are none."""
    maximum: float
    zeros: int
    nonfinite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteRecord:
    """An operation of the forward that made NaN or infinity, or used it first.

    Recorded only if the loss or a gradient is non-finite; in the order of the forward.
    """

    table: ClassVar[str] = "nonfinite"
    index: int
    operation: str
    """The dispatcher's name: `log`, `_softmax`."""
    site: int | None
    tensor: TensorRef | None
    """The operation's output, if it is part of the graph."""
    makes: Broken
    source: NonfiniteSource
    name: str | None
    """Name of the source parameter or buffer."""
    operands: tuple[OperandRecord, ...]
    broken: int
    """Number of NaN or infinite elements of the output."""
    dtype: str
    """Dtype of the output."""
    number: float | None
    """First plain number among the arguments, such as the exponent of a power."""
    blocked_rows: int
    """For a softmax: number of rows that contain only -inf."""
    because_of: int | None
    """Record (index) that made the infinity which this operation turned into NaN."""
    reaches_loss: bool
    """Whether it makes the loss non-finite."""


LineSource = Literal["watched", "matched", "module"]
"""Source of an operation's line: `watched`: observed when it ran; `matched`: from a captured
earlier step with the same operations; `module`: only the owner of its parameters is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCapture:
    """A backward captured without its forward, and the source of its lines."""

    table: ClassVar[str] = "late_capture"
    lines: LineSource
    matched_step: int | None
    """Step of the run that its lines come from; None if no step is similar."""
    matched_nodes: int
    nodes: int
    """Number of operations in the graph."""
    unsure: tuple[int, ...]
    """Nodes that may equally be the first with a non-finite result, because their results are not
    saved; empty if the first is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedBreak:
    """The most likely operation to have made non-finite gradients.

    Derived from the parameters with such gradients, and the operations of an earlier step.
    """

    table: ClassVar[str] = "suspected_break"
    operation: str
    """Name of its node."""
    site: int | None
    """Line of the operation in the earlier step."""
    others: tuple[int, ...]
    """Lines of other operations that may equally be the cause."""
    is_likely: bool
    """Whether one operation explains all of them."""
    parameters: tuple[int, ...]
    """Parameters with non-finite gradients."""
    matched_step: int
    """Earlier step of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedGradient:
    """A parameter's gradient with the unscaled and with the scaled loss."""

    parameter: int
    elements: int
    """Number of elements that are non-zero with the scaled loss."""
    flushed: int
    """Number of these that are zero with the unscaled loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRecord:
    """A second backward, from the loss times a power of two, compared with the first."""

    table: ClassVar[str] = "flush"
    dtype: str
    """The narrowest dtype that gradients pass through."""
    factor: float
    """The largest tried factor with which every gradient stays finite."""
    site: int | None
    """Line that chose the dtype; None if unknown."""
    gradients: tuple[FlushedGradient, ...]
    """Parameters with a gradient in both runs."""

    @property
    def elements(self) -> int:
        """Number of gradient elements that are non-zero with the scaled loss."""
        return sum(one.elements for one in self.gradients)

    @property
    def flushed(self) -> int:
        """Number of these that are zero with the unscaled loss."""
        return sum(one.flushed for one in self.gradients)


CheckOutcome = Literal["right", "wrong", "chosen", "ignoring", "unreversed", "unchecked"]
"""`chosen`: the function defines its own gradient, such as a straight-through estimator;
`ignoring`: so it does, and returns the same whatever gradient it is given;
`unreversed`: by its name it reverses gradients, and it hands them on with their sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCheck:
    """The gradient with respect to one input of a custom function, on its actual inputs."""

    name: str
    """Parameter name in the function's forward."""
    dtype: str
    """Dtype of the comparison: `float64`, or `float32` if the function supports no other."""
    elements: int
    """Number of compared elements."""
    analytical: float
    """Norm of backward's result for these elements."""
    numerical: float
    """Norm of the central differences."""
    deviation: float
    """Norm of the difference over the larger of the two norms, 0 to 2."""
    factor: float
    """Factor that brings the numerical gradient closest to backward's."""
    residual: float
    """Deviation that remains with the factor: near 0, only the factor is wrong."""
    is_constant: bool = False
    """Whether backward returns the same for every gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFunctionRecord:
    """One custom function, checked in float64 on its inputs in the forward."""

    table: ClassVar[str] = "custom_function"
    name: str
    """Name of the class."""
    operation: str
    """Name of its nodes, as `SwishFunctionBackward`."""
    outcome: CheckOutcome
    reason: str | None
    """Why it was not checked, or the evidence that its gradient is chosen."""
    applied: int | None
    """Line that applied it (a site)."""
    backward: int | None
    """Line at which its backward returns."""
    inputs: tuple[InputCheck, ...]
    """Inputs that were compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldRecord:
    """A parameter that a custom function was given, and for which its backward returned nothing."""

    table: ClassVar[str] = "withheld_gradient"
    function: str
    """Name of its class."""
    input: str
    """Parameter name in the function's forward."""
    parameter: int
    returned: int | None
    """Line of its backward (a site) that decides about the gradient of this input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrepeatedRegion:
    """A line with checkpoints that are recomputed in backward with other random numbers."""

    table: ClassVar[str] = "unrepeated_region"
    site: int | None
    """Line that calls `checkpoint`."""
    calls: int
    """Number of calls whose forward drew random numbers, without their state being kept."""
