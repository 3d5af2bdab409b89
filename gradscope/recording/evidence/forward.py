"""What was measured of a forward: values, activations, comparisons, recurrences."""

from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.records import Shape, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardStat:
    """The values of a tensor of the first step's graph; views of another tensor have none."""

    table: ClassVar[str] = "forward_stat"
    tensor: TensorRef
    numel: int
    norm: float
    """Euclidean norm. NaN or infinite when an element is."""
    minimum: float
    """Of the finite elements; NaN where there are none."""
    maximum: float
    zeros: int
    """How many elements are exactly zero."""
    nonfinite: int
    """How many elements are NaN or infinite."""

    @property
    def rms(self) -> float:
        """Root mean square over all elements; NaN for an empty tensor."""
        return self.norm / self.numel**0.5 if self.numel else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationRecord:
    """One call of sigmoid, tanh or softmax."""

    table: ClassVar[str] = "saturation"
    tensor: TensorRef
    """The activation's output."""
    operation: str
    """`sigmoid`, `tanh` or `softmax`."""
    elements: int
    """Elements, for softmax rows: those with more than one entry that is not masked."""
    saturated: int
    """Elements whose derivative is below 5 % of its maximum, or rows with an entry above .99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxRecord:
    """A softmax or log-softmax in the graph."""

    table: ClassVar[str] = "softmax"
    node: int
    dimension: int
    """Counted from the first, 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """The units of one layer under an activation that is flat on one side, over all of its calls.

    A unit is a row of the layer's weight: a feature, or a channel of a convolution.
    """

    table: ClassVar[str] = "unit"
    tensors: tuple[TensorRef, ...]
    """The activation's outputs, one for each call."""
    operation: str
    """As torch's dispatcher knows it: `relu`, `clamp_min`."""
    parameters: tuple[int, ...]
    """Of the layer whose outputs the activation takes, as far as they are trained."""
    units: int
    inactive: int
    """Units that lay on the flat side in every row of every call: nothing flows back to them."""
    rows: int
    """Batch times positions, over all calls."""
    samples: int
    """Batch alone, over all calls: rows of one image or sequence are much alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A call of a loss function, or a difference or product whose operands broadcast each other.

    Only calls whose result leads to the loss.
    """

    table: ClassVar[str] = "comparison"
    operation: str
    """As torch calls it: `mse_loss`, `sub`, `mul`."""
    site: int | None
    left: Shape
    """The first operand, of a loss function the prediction."""
    right: Shape
    left_tensor: TensorRef | None
    """Where it is in the graph; None for data."""
    right_tensor: TensorRef | None
    result: TensorRef


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
