"""The batch, its parts, the terms of its loss, and the experiments that were made with it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradscope.recording.records import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The shapes of the batch's tensors, in the order in which they are met."""

    table: ClassVar[str] = "batch"
    shapes: tuple[Shape, ...]

    @property
    def is_one_example(self) -> bool:
        """Whether every tensor that has dimensions has a first one of 1."""
        leading = {shape.dims[0] for shape in self.shapes if shape.dims}
        return leading == {1}


AccumulationLaw = Literal["equal", "mean", "counted", "fitted", "none"]
"""How the micro-batches' gradients have to be weighed to add up to the whole batch's: as they are;
each by 1/K; by what each micro-batch holds of something; by weights that only a fit tells; or no
weights do it."""

Obstruction = Literal[
    "batch norm",
    "random numbers",
    "non-finite",
    "repeated term",
    "half precision",
    "examples meet",
]
"""Why no weights do it: batch normalisation by each micro-batch's own statistics; random numbers
that the micro-batches could not be given alike; a micro-batch without a finite gradient; a part of
the loss beside a sum over examples, which each micro-batch adds; gradients in half precision, of
which rounding may leave that much; a loss that is no sum or mean over examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulationRecord:
    """The gradients of K micro-batches added up, beside those of the whole batch."""

    table: ClassVar[str] = "accumulation"
    micro_batches: int
    rows: int
    """Examples in the whole batch."""
    repeated: tuple[str, ...]
    """Parts of the batch that each micro-batch got whole, as `batch['position_ids']`."""
    loss: float
    """Of the whole batch."""
    law: AccumulationLaw
    unit: str | None
    """What counts where `law` is `counted`, as `rows`; what a micro-batch without a finite gradient
    has none of."""
    obstruction: Obstruction | None
    """Why, where `law` is `none`."""
    modules: tuple[int, ...]
    """Those that normalise by statistics of the batch, by index."""
    site: int | None
    """The line that lets examples meet, as in a matrix of similarities, where one was found."""
    apart: AccumulationLaw | None
    """The law that holds with batch normalisation, and what is random, switched off; None where
    that was not tried."""
    draws: int
    """Draws of random numbers, as dropout's, that the micro-batches were given as the whole batch
    had them."""
    unmatched: int
    """Those of which that was not possible."""
    scale: float
    """Of the sum, projected on the whole batch's gradient: K where the loss is a mean."""
    cosine: float
    """Between the sum and the whole batch's gradient."""
    deviation: float
    """Norm of the difference of the two, over that of the whole batch's gradient."""
    divided: float
    """The same of the sum divided by K."""
    remaining: float
    """The same of the sum by the law's weights; of the best weights there are without a law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchRecord:
    """One of the micro-batches."""

    table: ClassVar[str] = "micro_batch"
    rows: int
    loss: float
    is_finite: bool
    """Whether its loss and its gradients are."""
    count: float
    """What of the unit it holds; its rows where there is none."""
    weight: float | None
    """What its gradient is to be multiplied by; None without a law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatedGradient:
    """A parameter's gradient, accumulated beside that of the whole batch."""

    table: ClassVar[str] = "accumulated_gradient"
    parameter: int
    norm: float
    """Of the whole batch's gradient."""
    scale: float
    """As in `AccumulationRecord`, of this parameter alone; NaN where both gradients are too small
    to be compared. Likewise the two below."""
    deviation: float
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTermRecord:
    """The gradient of one term of the loss, with the weight that the term has in it."""

    table: ClassVar[str] = "loss_term"
    name: str
    """As the target names it."""
    site: int | None
    """The line that computed it."""
    value: float
    weight: float
    """Derivative of the loss with respect to the term."""
    norm: float
    """Of the term's gradient over all parameters, times its weight."""
    parameters: tuple[int, ...]
    """Those to which it gives a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPairRecord:
    """How the gradients of two terms lie to each other, over the parameters that both reach."""

    table: ClassVar[str] = "term_pair"
    first: int
    """Its place among the terms."""
    second: int
    first_norm: float
    second_norm: float
    cosine: float
    """NaN where one of the norms is zero."""
    parameters: tuple[int, ...]


ProbeName = Literal[
    "attributes",
    "batch",
    "comparisons",
    "custom functions",
    "dropped",
    "forward",
    "freezes",
    "half precision",
    "horizons",
    "influence",
    "initialisations",
    "leaves",
    "loss terms",
    "micro-batches",
    "non-finite",
    "optimizers",
    "redraws",
    "symmetry",
    "twins",
]
"""Names of the probes of a model after a backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """A probe of the model, and whether it ran."""

    table: ClassVar[str] = "examination"
    name: ProbeName
    """Name of the probe."""
    obstacle: str | None
    """Why it did not run; None if it did."""
