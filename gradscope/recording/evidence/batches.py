"""Evidence on the batch, its sequences, the terms of its loss, and the probes."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from gradscope.frozen import dataclass
from gradscope.recording.records import Shape, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The shapes of the batch's tensors, in order."""

    table: ClassVar[str] = "batch"
    shapes: tuple[Shape, ...]

    @property
    def is_one_example(self) -> bool:
        """Whether every tensor with dimensions has a first dimension of 1."""
        leading = {shape.dims[0] for shape in self.shapes if shape.dims}
        return leading == {1}


AccumulationLaw = Literal["equal", "mean", "counted", "fitted", "none"]
"""Weights with which the micro-batches' gradients add up to the whole batch's: `equal`: none;
`mean`: 1/K each; `counted`: by what each micro-batch contains of something; `fitted`: weights known
only from a fit; `none`: no weights do."""

Obstruction = Literal[
    "batch norm",
    "random numbers",
    "non-finite",
    "repeated term",
    "half precision",
    "examples meet",
]
"""Why no weights exist: batch normalization by each micro-batch's own statistics; random numbers
that the micro-batches could not share; a micro-batch without a finite gradient; a part of the loss
besides a sum over examples, which each micro-batch adds; rounding of half-precision gradients; a
loss that is no sum or mean over examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulationRecord:
    """The accumulated gradients of K micro-batches, compared with those of the whole batch."""

    table: ClassVar[str] = "accumulation"
    micro_batches: int
    rows: int
    """Number of examples in the whole batch."""
    repeated: tuple[str, ...]
    """Parts of the batch that each micro-batch got whole, as `batch['position_ids']`."""
    loss: float
    """Loss of the whole batch."""
    law: AccumulationLaw
    unit: str | None
    """What is counted if `law` is `counted`, as `rows`; what a micro-batch without a finite
    gradient has none of."""
    obstruction: Obstruction | None
    """The reason if `law` is `none`."""
    modules: tuple[int, ...]
    """Modules (by index) that normalize by statistics of the batch."""
    site: int | None
    """The line that combines examples, as in a similarity matrix, if one was found."""
    apart: AccumulationLaw | None
    """The law with batch normalization and randomness disabled; None if that was not tried."""
    draws: int
    """Number of random draws, such as dropout's, that micro-batches shared with the whole batch."""
    unmatched: int
    """Number of draws that could not be shared."""
    scale: float
    """Projection of the sum on the whole batch's gradient: K if the loss is a mean."""
    cosine: float
    """Cosine between the sum and the whole batch's gradient."""
    deviation: float
    """Norm of the difference between both, relative to that of the whole batch's gradient."""
    divided: float
    """Deviation of the sum divided by K."""
    remaining: float
    """Deviation of the sum with the law's weights; without a law, with the best weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchRecord:
    """One of the micro-batches."""

    table: ClassVar[str] = "micro_batch"
    rows: int
    loss: float
    is_finite: bool
    """Whether its loss and gradients are finite."""
    count: float
    """How much of the unit it contains; its rows if there is no unit."""
    weight: float | None
    """Factor for its gradient; None without a law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatedGradient:
    """A parameter's accumulated gradient, compared with that of the whole batch."""

    table: ClassVar[str] = "accumulated_gradient"
    parameter: int
    norm: float
    """Norm of the whole batch's gradient."""
    scale: float
    """As in `AccumulationRecord`, for this parameter. NaN if both gradients are too small to
    compare; this also applies to `cosine` and `deviation`.
    """
    deviation: float
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTermRecord:
    """The gradient of one term of the loss, with the term's weight."""

    table: ClassVar[str] = "loss_term"
    name: str
    """Name in the target."""
    site: int | None
    """Line that computed it."""
    value: float
    weight: float
    """Derivative of the loss with respect to the term."""
    norm: float
    """Norm of the term's gradient over all parameters, times its weight."""
    parameters: tuple[int, ...]
    """Parameters that get a gradient from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPairRecord:
    """Angle between the gradients of two terms, over the parameters that both reach."""

    table: ClassVar[str] = "term_pair"
    first: int
    """Index of the first term."""
    second: int
    first_norm: float
    second_norm: float
    cosine: float
    """NaN if one of the norms is zero."""
    parameters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedExamplesRecord:
    """The first operation whose result for other examples changed when one example did."""

    table: ClassVar[str] = "mixed_examples"
    operation: str
    """Name of the function."""
    site: int | None
    rows: int
    """Number of examples."""
    dims: tuple[int, ...]
    """Shape of the result."""
    in_model: bool
    """Whether the model's forward called it."""
    is_per_example: bool
    """Whether the model returns something for each example."""
    is_ambiguous: bool
    """Whether all tensors of the batch share a second dimension, which may be that of examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualOutputsRecord:
    """Different examples for which the model returns the same numbers."""

    table: ClassVar[str] = "equal_outputs"
    operation: str
    """Name of the function from whose result on they are equal."""
    site: int | None
    rows: int
    """Number of examples."""
    equal: int
    """Number of examples with one output and different inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredInputRecord:
    """An input of the model that nothing depends on."""

    table: ClassVar[str] = "ignored_input"
    name: str
    """Name of the forward's parameter, or of the tensor in the batch, as `batch['mask']`."""
    site: int | None
    """Line that defines the forward."""
    is_measured: bool
    """Whether other numbers left the loss as it was; otherwise the forward never reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingRecord:
    """A loss that depends on numbers at positions that a mask of the batch marks as padding."""

    table: ClassVar[str] = "padding"
    mask: str
    """Name of the mask or of the lengths in the batch, as `batch['mask']`."""
    argument: str
    """Parameter of a module's forward that was given no mask; empty if there is none."""
    site: int | None
    """Line that calls this module without it."""
    change: float
    """Change of the loss when the padding holds other numbers."""


ProbeName = Literal[
    "attributes",
    "batch",
    "checkpoints",
    "comparisons",
    "custom functions",
    "derivatives",
    "dropped",
    "forward",
    "freezes",
    "half precision",
    "horizons",
    "ignored inputs",
    "influence",
    "initialisations",
    "leaves",
    "left-out terms",
    "loss terms",
    "micro-batches",
    "mixed examples",
    "equal outputs",
    "non-finite",
    "optimizers",
    "overfit",
    "path cuts",
    "redraws",
    "symmetry",
    "twins",
    "withheld gradients",
]
"""Names of the probes of a model after a backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """A probe of the model, and whether it ran."""

    table: ClassVar[str] = "examination"
    columns: ClassVar[Mapping[str, str]] = {"skip_reason": "obstacle"}
    name: ProbeName
    """Name of the probe."""
    skip_reason: str | None
    """Why it did not run; None if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIdentity:
    """A batch that a step of a run used: its samples, and what its tensors held."""

    table: ClassVar[str] = "batch_identity"
    step: int
    loader: str
    """Name of the data loader in the script; empty if it has none."""
    indices: tuple[int, ...]
    """Indices that the sampler gave; empty if it gave none."""
    shapes: tuple[Shape, ...] = ()
    """Shapes of the tensors; empty if they were not read."""
    elements: int = 0
    """Number of elements that were read."""
    nan: int = 0
    """Number of these that are NaN."""
    infinite: int = 0
    """Number of these that are infinite."""
    lowest: float | None = None
    """Smallest finite element, of the floating-point tensors if there are any."""
    highest: float | None = None
    """Largest finite element of the same."""
    digest: str = ""
    """Hash of all elements, in hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRowRecord:
    """A table of encodings of which each example of a batch gets a row, and its positions one."""

    table: ClassVar[str] = "position_row"
    site: int | None
    examples: int
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedWeightRecord:
    """Weights of attention on positions that a mask should hide."""

    table: ClassVar[str] = "masked_weight"
    site: int | None
    """Line of the mask."""
    softmax: int | None
    """Line of the softmax."""
    way: str
    """How the mask meets the scores: `fill`, `product` or `sum`."""
    weight: float | None
    """Mean of the weight, 0 to 1, that the softmax gives them, over the rows that hide some. None
    for fused attention."""
    filled: float
    """Score that the mask gives them, or adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedReadRecord:
    """A read of one position of every sequence that is padding in some of them."""

    table: ClassVar[str] = "padded_read"
    site: int | None
    result: TensorRef
    sequences: int
    padded: int
    """Number of sequences that end in padding."""
    share: float
    """Mean share of a sequence, 0 to 1, that is padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedMaskRecord:
    """A mask of attention that hides all tokens of a batch and leaves its padding visible."""

    table: ClassVar[str] = "inverted_mask"
    site: int | None
    """Line that made the mask; otherwise the line of the attention."""
    used: int | None
    """Line of the attention."""
    visible: int
    """Number of keys that are visible, all of them padding."""
    hidden: int
    """Number of tokens that are hidden."""
    token: int
    """Token of the padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAnswerRecord:
    """A loss whose targets are tokens that the model sees where it is to predict them."""

    table: ClassVar[str] = "seen_answer"
    site: int | None
    operation: str
    """torch's name of the loss, or of what chooses from logarithms: `gather`, `mul`."""
    mixer: int | None
    """Line of the attention or the recurrent layer over the tokens."""
    call: int | None
    """Call of the module around that line."""
    ahead: int
    """1 if the targets are the next tokens, 0 if they are those at the position itself."""
    targets: int
    """Number of targets that count, of some sequences."""
    seen: int
    """Number of them that are visible."""
