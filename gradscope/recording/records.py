"""The records of a recording: what was measured, as numbers, strings and tuples.

Nothing here holds a tensor or imports torch. `None`, `0.0` and NaN are three different values:
never measured, a true zero, broken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeVar

from gradscope.recording.stored_gradient import KeptGradient

Evidence = TypeVar("Evidence")

Reach = Literal["gradient", "zero", "none", "frozen"]
"""What backward left in a parameter. `frozen`: nothing, because it does not require grad."""

NodeKind = Literal["operation", "view", "parameter", "leaf"]
"""`view` nodes hand on their neighbour's gradient under another shape; `leaf` is a tensor that
requires grad and belongs to no parameter of the model."""

CutKind = Literal["detach", "no-grad", "read", "non-differentiable"]
"""How a gradient was cut off. `read`: the numbers were taken out of torch."""

StepKind = Literal["training", "step", "probe", "run"]
"""`training` steps led to the first `step`, which is judged; `probe` steps went on from there. Both
were made by gradscope on a snapshot that was put back afterwards. `run` steps are a script's own:
the calls of its optimizers, and what led to each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A line of code outside torch."""

    file: str
    """Absolute path, or a name such as `<stdin>` where there is no file."""
    line: int
    function: str
    source: str
    """The line's text without indentation; empty where the source cannot be read."""

    @property
    def is_installed(self) -> bool:
        """Whether the line belongs to an installed package, and not to the user's own code."""
        return "site-packages" in self.file or "dist-packages" in self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape and type of a tensor."""

    dims: tuple[int, ...]
    dtype: str
    """As torch writes it, without the `torch.` prefix: `float32`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRecord:
    """A parameter of the model."""

    index: int
    name: str
    """Fully qualified name, the first one `named_parameters` gives."""
    aliases: tuple[str, ...]
    """The other names of the same tensor (tied weights)."""
    module: int
    """Index of the module that owns it under its first name."""
    shape: Shape
    device: str
    numel: int
    requires_grad: bool
    optimizer_group: int | None
    """Index of its group in the optimizer; None without an optimizer, or when it is in no group."""
    site: int | None = None
    """The line that gave it to its module, as `self.scale = nn.Parameter(…)` or the one that made
    the layer; None where that was not watched."""
    is_shard: bool = False
    """Whether this process holds only a part of it, of which its norms are then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRecord:
    """A module of the model, or one that was called and lies outside it (a loss module)."""

    index: int
    path: str
    """Fully qualified name; empty for the model itself."""
    aliases: tuple[str, ...]
    class_name: str
    parent: int | None
    in_model: bool
    training: bool
    site: int | None = None
    """The line that gave it to its parent, as `self.head = nn.Linear(…)`; None where that was not
    watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """A tensor of the graph: the output `slot` of the node `node`."""

    node: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCallRecord:
    """One call of a module."""

    index: int
    graph: int
    module: int
    call: int
    """How many times this module had been called before, in this graph."""
    parent: int | None
    """The call (index) in which this call was made."""
    site: int | None
    """The line that made the call."""
    inputs: tuple[TensorRef, ...]
    """The tensors handed in that require grad, nested containers included."""
    outputs: tuple[TensorRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node of the backward graph; its outputs are tensors of the forward."""

    index: int
    graph: int
    operation: str
    """As autograd names it: `AddmmBackward0`, `AccumulateGrad`."""
    kind: NodeKind
    depth: int
    """Edges on the longest path from the loss; the loss itself is 0."""
    sequence: int | None
    """autograd's creation number, ascending through the forward; None for leaves."""
    module_call: int | None
    """The innermost module call that made it."""
    site: int | None
    outputs: tuple[Shape | None, ...]
    parameter: int | None
    """The parameter that a `parameter` node accumulates into."""
    same_as: TensorRef | None = None
    """The tensor whose gradient is this one's too (a view of it), measured there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRecord:
    """Backward hands a gradient from `source` to output `slot` of `target`."""

    source: int
    target: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRecord:
    """A line of the forward that cuts parameters off from the loss."""

    graph: int
    operation: str
    """The call, as `detach`, `argmax`, `data`; `checkpoint` for a reentrant one."""
    kind: CutKind
    site: int | None
    last: int | None
    """The line of the last operation that still carried the parameters' gradient (a site)."""
    parameters: tuple[int, ...]
    """Those that backward did not come to, and whose gradient this cut stops."""
    joins: tuple[int, ...]
    """Nodes of the graph to which something came from behind the cut; empty where nothing that
    could be followed led to the loss."""
    count: int
    """How many calls on this line cut something off."""
    call: int | None = None
    """The innermost module call in which it happened; None outside of all."""
    whole_call: bool = False
    """Whether a whole module was called without gradients; the line is that of its call."""
    taken_out: bool = False
    """Whether numbers from behind it were taken out of torch, where they cannot be followed."""
    straight_through: bool = False
    """Whether something else hands the gradient on in its place, as in `x + (q - x).detach()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStat:
    """The numbers of one gradient; None is what was not measured: of a run's, all but the norm.

    `norm` and `absolute_maximum` are exact (every element, float64 sums of float32 or wider);
    `zero_share` comes from a strided sample where `sampled` is true, `magnitudes` from one of at
    most 1,024 elements.
    """

    numel: int
    norm: float
    """Euclidean norm. NaN or infinite when an element is."""
    absolute_maximum: float | None = None
    zero_share: float | None = None
    """Share of elements that are exactly zero, 0 to 1."""
    nonfinite: int | None = None
    """Number of elements that are NaN or infinite."""
    sampled: bool | None = None
    lowest_exponent: int | None = None
    magnitudes: tuple[int, ...] | None = None
    """Histogram of a sample's finite magnitudes in octaves: entry `i` counts elements with
    `2**(lowest_exponent + i) <= abs(g) < 2**(lowest_exponent + i + 1)`. Zeros and numbers too small
    to be normal are in no octave."""

    @property
    def is_broken(self) -> bool:
        """Whether an element is NaN or infinite; the norm tells where they were not counted."""
        return not isfinite(self.norm) if self.nonfinite is None else self.nonfinite > 0

    @property
    def is_zero(self) -> bool:
        """Whether every element is exactly zero."""
        return (self.norm if self.absolute_maximum is None else self.absolute_maximum) == 0.0

    @property
    def rms(self) -> float:
        """Root mean square over all elements; NaN for an empty tensor."""
        return self.norm / self.numel**0.5 if self.numel else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterStat:
    """What one step left in one parameter."""

    step: int
    parameter: int
    reach: Reach
    gradient: GradientStat | None
    reason: str | None
    """Why there is no gradient, where `gradient` is None."""
    weight_norm: float | None
    """None where it cannot be read. In a run as it was measured last: in the first three steps, and
    in every tenth."""
    update_norm: float | None
    """Norm of the change an optimizer step made; None without one, and where not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStat:
    """The gradient with respect to output `slot` of a node, in one step."""

    step: int
    node: int
    slot: int
    order: int | None
    """Place in the order in which backward delivered the gradients; None when it did not."""
    gradient: GradientStat | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputStat:
    """The part of a tensor's gradient that came through one module call.

    Measured where the tensor is used outside of the call too, as by a residual branch.
    """

    step: int
    call: int
    position: int
    """Of the tensor among the call's inputs."""
    norm: float | None
    """None where the call made no use of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One forward and backward; of a run, everything since the optimizer step before it."""

    index: int
    kind: StepKind
    graph: int | None
    """The graph of this step's nodes; steps whose graphs are alike share one. None of a training
    step, of a run's, and where there is none."""
    loss: float | None
    """Where backward started, of several the last; None where it started from a non-scalar, and
    where there was none."""
    optimizer: str | None
    """The optimizer that made the step after this backward, as `AdamW(lr=0.001)`. None at the end
    of a run: what is left there led to no step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something that happened in a step."""

    step: int
    order: int
    kind: str
    seconds: float
    """Since the recording began."""
    site: int | None
    numbers: tuple[tuple[str, float], ...]
    """By name; what is not known is left out."""
    optimizer: int | None = None
    """Its place among the `TrainedOptimizer` records of a run; None where none has a part in it."""
    subject: str = ""
    """What it happened to or by what, as the user knows it: a model, an optimizer, a loss or a
    function by name. Empty where that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What could not be measured or judged, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the recording was made."""

    python: str
    torch: str
    platform: str
    device: str
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """What was inspected."""

    name: str
    """As the user wrote it, or the model's class."""
    model: str
    """The model's class."""
    batch: str
    """Shapes of the batch, as `float32[8, 10], int64[8]`."""
    loss: str
    """Where the loss came from, as `loss_fn(output, target)`."""
    optimizer: str | None
    mode: str
    """`train` or `eval`."""
    seed: int | None
    synthetic_loss: bool
    """Whether gradscope made the loss up because the target has none."""
    root: str
    """The working directory, to which paths are shown."""
    repository: str
    """The folder of the repository that the working directory belongs to; absolute like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was measured. Indices in records are places in these tuples."""

    version: str
    """Of gradscope, that made it."""
    command: str
    environment: Environment
    target: TargetRecord
    parameters: tuple[ParameterRecord, ...]
    modules: tuple[ModuleRecord, ...]
    calls: tuple[ModuleCallRecord, ...]
    sites: tuple[Site, ...]
    nodes: tuple[NodeRecord, ...]
    edges: tuple[EdgeRecord, ...]
    steps: tuple[StepRecord, ...]
    events: tuple[EventRecord, ...]
    parameter_stats: Sequence[ParameterStat]
    """A tuple; of a run that was loaded a `NormTable`."""
    tensor_stats: tuple[TensorStat, ...]
    skipped: tuple[Skipped, ...]
    input_stats: tuple[InputStat, ...] = ()
    cuts: tuple[CutRecord, ...] = ()
    evidence: tuple[object, ...] = ()
    """What the probes found: records of the kinds in `gradscope.recording.evidence`."""
    finished: bool = True
    """False of a run that goes on still, or was killed: what it did last may be missing."""
    captured_steps: "tuple[CapturedStep, ...]" = ()
    """Backward passes of a run that were watched closely, in their order."""
    kept_gradients: tuple[KeptGradient, ...] = ()
    """Those that were asked for, whole or as sketches; by step, and then by parameter."""

    def evidence_of(self, kind: type[Evidence]) -> tuple[Evidence, ...]:
        """Return the evidence of one kind, in the order in which it was found."""
        return tuple(record for record in self.evidence if isinstance(record, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStep:
    """A close look at one backward of a training run, recorded as a step that is inspected."""

    step: int
    """The run's step that the backward led to."""
    order: int
    """Its place among the events of that step."""
    recording: Recording
    """Of the one step (kind `step`), whose parameters are named as in the run. It holds no looks of
    its own."""
    same_as: int | None = None
    """Number of the look, counted in the run, whose graph, modules and lines this one repeats. It
    has numbers of its own; None where everything is its own."""
    own_evidence: tuple[object, ...] = ()
    """Evidence that is not repeated, where `same_as` is given."""
