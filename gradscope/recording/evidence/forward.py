"""Evidence on the forward: values, activations, comparisons, recurrences, and cut paths."""

from typing import ClassVar, Literal

from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutKind
from gradscope.recording.records import Measured, Shape, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardStat(Measured):
    """The values of a tensor of the first step's graph; views of another tensor have none."""

    table: ClassVar[str] = "forward_stat"
    tensor: TensorRef
    numel: int
    norm: float
    """Euclidean norm. NaN or infinite if an element is."""
    minimum: float
    """Minimum of the finite elements; NaN if there are none."""
    maximum: float
    zeros: int
    """Number of elements that are exactly zero."""
    nonfinite: int
    """Number of NaN or infinite elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationRecord:
    """One call of sigmoid, tanh or softmax."""

    table: ClassVar[str] = "saturation"
    tensor: TensorRef
    """Output of the activation."""
    operation: str
    """`sigmoid`, `tanh` or `softmax`."""
    elements: int
    """Number of elements; for softmax, of rows with two or more unmasked entries."""
    saturated: int
    """Elements whose derivative is below 5 % of its maximum, or rows with an entry above .99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxRecord:
    """A softmax or log-softmax in the graph."""

    table: ClassVar[str] = "softmax"
    node: int
    dimension: int
    """Dimension, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneNormalisationRecord:
    """A layer or group normalisation whose groups have one element each.

    An element minus its own mean is zero, so that the result is the bias whatever the input.
    """

    table: ClassVar[str] = "lone_normalisation"
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """The units of one layer under an activation that is flat on one side, over all of its calls.

    A unit is a row of the layer's weight: a feature, or a channel of a convolution.
    """

    table: ClassVar[str] = "unit"
    tensors: tuple[TensorRef, ...]
    """Outputs of the activation, one per call."""
    operation: str
    """The dispatcher's name: `relu`, `clamp_min`."""
    parameters: tuple[int, ...]
    """Trained parameters of the layer before the activation."""
    units: int
    inactive: int
    """Number of units on the flat side in every row of every call: no gradient flows to them."""
    rows: int
    """Batch times positions, over all calls."""
    samples: int
    """Batch only, over all calls: rows of one image or sequence are similar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRecord:
    """A call of a loss function, or a difference or product whose operands broadcast each other.

    Only calls whose result leads to the loss.
    """

    table: ClassVar[str] = "comparison"
    operation: str
    """torch's name: `mse_loss`, `sub`, `mul`."""
    site: int | None
    left: Shape
    """First operand; for a loss function, the prediction."""
    right: Shape
    left_tensor: TensorRef | None
    """Position in the graph; None for data."""
    right_tensor: TensorRef | None
    result: TensorRef
    left_from: Shape | None = None
    """Shape that the first operand had before a call joined its dimensions; None without one."""
    right_from: Shape | None = None
    reduction: str | None = None
    """`mean`, `sum` or `none`, of a loss function; None if unknown."""
    ahead: int | None = None
    """Positions by which the classes of a loss run ahead of the tokens that the model has looked
    up: 1 if it is to predict the next token. None if they are no tokens of it."""
    targets: int | None = None
    """Number of targets that count; None unless some are at padding of the model's tokens."""
    at_padding: int | None = None
    """Number of these at padding, all of one class."""
    padding_class: int | None = None
    """The class."""
    grown: int | None = None
    """Line whose operands broadcast each other, and made an operand of this call of them."""
    label: float | None = None
    """Number that all targets are, of a loss that may tell two classes apart; otherwise None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSimilarityRecord:
    """A cross-entropy of the similarities of examples to each other, and to themselves."""

    table: ClassVar[str] = "own_similarity"
    site: int | None
    rows: int
    largest: int
    """Number of rows of which no other similarity is larger than that to itself."""
    is_answer: bool = False
    """Whether the similarity to itself is the right answer of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshTargetRecord:
    """A target of the loss that is a random draw, and that nothing else uses."""

    table: ClassVar[str] = "fresh_target"
    site: int | None
    """Line of the comparison."""
    noise: int | None
    """Line that adds another draw of the same shape to data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnchorRecord:
    """A comparison of a parameter with a constant that shares its memory, as `p - p.data`."""

    table: ClassVar[str] = "own_anchor"
    node: int
    site: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedMeanRecord:
    """A sum or mean by hand over the positions of sequences, which leads to the loss."""

    table: ClassVar[str] = "padded_mean"
    site: int | None
    operation: str
    """`mean` or `sum`."""
    positions: int
    at_padding: int
    """Number of them at padding."""
    is_masked: bool
    """Whether all terms at padding are 0. Otherwise none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedPositiveRecord:
    """A cross-entropy whose right answer, the first column, is among the wrong ones, too."""

    table: ClassVar[str] = "repeated_positive"
    site: int | None
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroQuotientRecord:
    """A division of whole numbers in an inspected forward that gave 0, and became a float."""

    table: ClassVar[str] = "zero_quotient"
    site: int | None
    elements: int
    """Number of dividends, which are not in ascending order."""
    largest: float
    """Largest dividend."""
    divisor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroLabelRecord:
    """A loss of margins whose labels are 0 and 1, and not -1 and 1."""

    table: ClassVar[str] = "zero_label"
    site: int | None
    operation: str
    """torch's name of the loss; `hinge` of one that is written by hand."""
    labels: int
    zeros: int
    """Number of labels that are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityTargetRecord:
    """Targets of a cross-entropy that are shares of the classes, but no probabilities."""

    table: ClassVar[str] = "probability_target"
    site: int | None
    examples: int
    several: int
    """Number of examples with two classes or more, whose shares add up to more than 1."""
    largest: float
    """Largest sum of an example."""
    least: float
    """Smallest share."""
    are_binary: bool
    """Whether all shares are 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableTargetRecord:
    """A comparison of data with a prediction that cannot have the values of some of them."""

    table: ClassVar[str] = "unreachable_target"
    site: int | None
    """Line of the comparison."""
    operation: str
    """Operation that bounds the prediction; the loss function if it does so itself."""
    bound: TensorRef | None
    """Result of that operation; None for the loss function."""
    result: TensorRef
    """Result of the comparison."""
    low: float
    """Smallest value that the prediction can have."""
    high: float
    elements: int
    """Number of targets."""
    outside: int
    """Number of targets that lie beyond."""
    lost: float
    """Mean squared distance of the targets from the range, over their variance."""
    least: float
    """Smallest target."""
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonRecord:
    """A recurrent layer: how strongly its last output depends on its input at each time step."""

    table: ClassVar[str] = "horizon"
    module: int
    """Index of the module."""
    call_site: int | None
    """Line that calls it."""
    norms: tuple[float, ...]
    """By time step: norm, over batch and features, of the derivative of a random combination of the
    last output's elements with respect to the input of this step."""
    read_from: int
    """First time step whose output is used directly; earlier steps act only through the state."""

    @property
    def steps(self) -> int:
        """Length of the sequence."""
        return len(self.norms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCutRecord:
    """A cut behind parameters that get a gradient another way, and from which the loss is made."""

    table: ClassVar[str] = "path_cut"
    operation: str
    """The call, as in `CutRecord`."""
    kind: CutKind
    site: int | None
    last: int | None
    """Line (a site) of the last operation that still carried a gradient."""
    call: int | None
    """Innermost module call around it; None outside of all."""
    count: int
    """Number of calls on this line that cut something off."""
    parameters: tuple[int, ...]
    """Trainable parameters whose gradient it stops."""
    joins: tuple[int, ...]
    """Nodes of the graph with an input from behind the cut."""
    layer_joins: tuple[int, ...]
    """Joins whose input from behind the cut has passed a layer without a gradient."""
    read_into: tuple[int, ...]
    """Nodes that add or subtract a plain number which was read behind the cut."""
    origins: tuple[TensorRef, ...]
    """Tensors of the graph from which what was cut off had been made, the nearest on each way."""
    sources: int
    """Number of different tensors that were cut off there, 64 at most beside leaves."""
    second_order: bool | None = None
    """Whether a switch of the script's own asks for the gradient that a derivative without
    `create_graph` cuts off, as `first_order=False`. None without a switch."""
    is_draw: bool = False
    """Whether what was cut off is `mean + noise * spread`, a draw that carries a gradient, and
    nothing else of the loss uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroDerivativeRecord:
    """A call of `autograd.grad` for a second derivative, which is zero for every element."""

    table: ClassVar[str] = "zero_derivative"
    site: int | None
    elements: int
    has_graph: bool = False
    """Whether it was computed with `create_graph=True`, so that a loss may train through it."""


DropWay = Literal["discarded", "replaced", "unread"]
"""How statements around the loss lose a term: `discarded`: no variable takes the sum with it;
`replaced`: the loss is assigned to its variable; `unread`: nothing reads its variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutTermRecord:
    """A number with a graph, named as a term of a loss, that the loss does not contain."""

    table: ClassVar[str] = "left_out_term"
    name: str
    """Name of the variable, or of the attribute with `self`."""
    site: int | None
    """Line of the call that returns it, or that assigns the variable or attribute."""
    way: DropWay | None = None
    """How it is lost; None where only its name and the graph tell that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialNormRecord:
    """A distance from a number of norms over a part of a derivative by examples."""

    table: ClassVar[str] = "partial_norm"
    site: int | None
    norms: int
    examples: int
    """Number of examples, each with one result that was differentiated."""
    shape: tuple[int, ...]
    """Shape of the derivative."""


LogitKind = Literal["attention", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRecord:
    """The logits of one softmax, or of a loss function with a softmax in it."""

    table: ClassVar[str] = "logits"
    tensor: TensorRef
    """Output of the softmax, the attention or the loss function."""
    kind: LogitKind
    largest: tuple[float, ...]
    """Largest magnitude of a logit that is not masked: by head, or one number for all."""
    log_normaliser: float
    """For outputs, the mean over rows of log Z, the logarithm of the sum of exponentials. NaN for
    attention."""
    rows: int
    """Number of rows that were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRecord:
    """A choice of the largest of several scores in every row, as routers choose experts."""

    table: ClassVar[str] = "router"
    tensor: TensorRef
    """The largest scores."""
    chosen: int
    """Number of experts that are chosen per row."""
    rows: int
    shares: tuple[float, ...]
    """By expert: share of all choices."""
    entropy: float
    """Mean entropy of the scores of a row, over that of equal scores: 0 to 1."""
