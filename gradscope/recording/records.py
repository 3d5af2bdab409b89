"""The records of a recording: measurements as numbers, strings and tuples.

Nothing here holds a tensor or imports torch. `None`, `0.0` and NaN are three different values:
never measured, a true zero, broken.
"""

from collections.abc import Sequence
from dataclasses import field
from math import isfinite
from typing import Literal, TypeVar, cast

from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.stored_gradient import StoredGradient

Evidence = TypeVar("Evidence")

Reach = Literal["gradient", "zero", "none", "frozen"]
"""State of a parameter after backward. `frozen`: no gradient, because it does not require grad; in
a step of a training also one of zeros, as an earlier `zero_grad` leaves them."""

NodeKind = Literal["operation", "view", "parameter", "leaf"]
"""`view` nodes pass on their neighbour's gradient with another shape; `leaf` is a tensor that
requires grad and belongs to no parameter of the model."""

StepKind = Literal["training", "step", "probe", "run"]
"""`training` steps led to the first `step`, which is judged; `probe` steps followed it. gradscope
made both on a snapshot, and restored the model afterwards. `run` steps are a script's own:
optimizer steps, and the events before each."""


def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, and is not the user's own code."""
    return "site-packages" in file or "dist-packages" in file


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A line of code outside torch."""

    file: str
    """Absolute path, or a name such as `<stdin>` if there is no file."""
    line: int
    function: str
    source: str
    """Text of the line without indentation; empty if the source cannot be read."""

    @property
    def is_installed(self) -> bool:
        """Whether the line belongs to an installed package, and not to the user's own code."""
        return is_installed(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape and dtype of a tensor."""

    dims: tuple[int, ...]
    dtype: str
    """torch's name, without the `torch.` prefix: `float32`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRecord:
    """A parameter of the model."""

    index: int
    name: str
    """Fully qualified name, the first one of `named_parameters`."""
    aliases: tuple[str, ...]
    """Other names of the same tensor (tied weights)."""
    module: int
    """Index of the module that owns it under its first name."""
    shape: Shape
    device: str
    numel: int
    requires_grad: bool
    optimizer_group: int | None
    """Index of its group in the optimizer; None without an optimizer, or if it is in no group."""
    site: int | None = None
    """Line that registered it, as `self.scale = nn.Parameter(…)` or the one that made the layer;
    None if that was not observed."""
    is_shard: bool = False
    """Whether this process holds only a part of it. Its norms are those of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRecord:
    """A module of the model, or a called module outside it (a loss module)."""

    index: int
    path: str
    """Fully qualified name; empty for the model itself."""
    aliases: tuple[str, ...]
    class_name: str
    parent: int | None
    in_model: bool
    training: bool
    site: int | None = None
    """Line that registered it, as `self.head = nn.Linear(…)`; None if that was not observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """A tensor of the graph: output `slot` of node `node`."""

    node: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCallRecord:
    """One call of a module."""

    index: int
    graph: int
    module: int
    call: int
    """Number of earlier calls of this module in this graph."""
    parent: int | None
    """Call (index) in which this call was made."""
    site: int | None
    """Line that made the call."""
    inputs: tuple[TensorRef, ...]
    """Input tensors that require grad, nested containers included."""
    outputs: tuple[TensorRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node of the backward graph; its outputs are tensors of the forward."""

    index: int
    graph: int
    operation: str
    """autograd's name: `AddmmBackward0`, `AccumulateGrad`."""
    kind: NodeKind
    depth: int
    """Length of the longest path from the loss, in edges; 0 for the loss itself."""
    sequence: int | None
    """autograd's sequence number, ascending through the forward; None for leaves."""
    module_call: int | None
    """Innermost module call that made it."""
    site: int | None
    outputs: tuple[Shape | None, ...]
    parameter: int | None
    """Parameter that a `parameter` node accumulates into."""
    same_as: TensorRef | None = None
    """Tensor with the same gradient (this node is a view of it), which is measured there."""

    def dims(self, slot: int = 0) -> tuple[int, ...] | None:
        """Return the dimensions of an output; None if they are unknown."""
        shape = self.outputs[slot] if slot < len(self.outputs) else None
        return None if shape is None else shape.dims


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRecord:
    """Backward passes a gradient from `source` to output `slot` of `target`."""

    source: int
    target: int
    slot: int


class Measured:
    """What has the norm of so many elements."""

    __slots__ = ()
    numel: int
    norm: float

    @property
    def rms(self) -> float:
        """Root mean square over all elements; NaN for an empty tensor."""
        return self.norm / self.numel**0.5 if self.numel else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStat(Measured):
    """Statistics of one gradient; None for those not measured: in a run, all but the norm.

    `norm` and `absolute_maximum` are exact (every element, float64 sums of float32 or wider).
    `zero_share` comes from a strided sample if `sampled` is true, `magnitudes` from one of at most
    1,024 elements.
    """

    numel: int
    norm: float
    """Euclidean norm. NaN or infinite if an element is."""
    absolute_maximum: float | None = None
    zero_share: float | None = None
    """Share of elements that are exactly zero, 0 to 1."""
    nonfinite: int | None = None
    """Number of elements that are NaN or infinite."""
    sampled: bool | None = None
    lowest_exponent: int | None = None
    magnitudes: tuple[int, ...] | None = None
    """Histogram of a sample's finite magnitudes in octaves: entry `i` counts elements with
    `2**(lowest_exponent + i) <= abs(g) < 2**(lowest_exponent + i + 1)`. Zeros and subnormal numbers
    are in no octave."""

    @property
    def is_broken(self) -> bool:
        """Whether an element is NaN or infinite; from the norm if they were not counted."""
        return not isfinite(self.norm) if self.nonfinite is None else self.nonfinite > 0

    @property
    def is_zero(self) -> bool:
        """Whether every element is exactly zero."""
        return (self.norm if self.absolute_maximum is None else self.absolute_maximum) == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterStat:
    """The state of one parameter after one step."""

    step: int
    parameter: int
    reach: Reach
    gradient: GradientStat | None
    reason: str | None
    """Why there is no gradient, if `gradient` is None."""
    weight_norm: float | None
    """None if it is unreadable. In a run, its last measurement: it is measured in the first three
    steps, and in every tenth."""
    update_norm: float | None
    """Norm of the update by an optimizer step; None without one, and if not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStat:
    """The gradient with respect to output `slot` of a node, in one step."""

    step: int
    node: int
    slot: int
    order: int | None
    """Index in the order of delivery by backward; None if it was not delivered."""
    gradient: GradientStat | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputStat:
    """The part of a tensor's gradient that came through one module call.

    Measured if the tensor is also used outside the call, for example by a residual branch.
    """

    step: int
    call: int
    position: int
    """Index of the tensor among the call's inputs."""
    norm: float | None
    """None if the call did not use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One forward and backward; in a run, everything since the previous optimizer step."""

    index: int
    kind: StepKind
    graph: int | None
    """Graph of this step's nodes; steps with equal graphs share one. None for training steps, steps
    of a run, and without a graph."""
    loss: float | None
    """Start of backward, the last of several; None for a non-scalar, and without a backward."""
    optimizer: str | None
    """Optimizer that stepped after this backward, as `AdamW(lr=0.001)`. None at the end of a run,
    for events that led to no step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event in a step."""

    step: int
    order: int
    kind: str
    seconds: float
    """Seconds since the start of the recording."""
    site: int | None
    numbers: tuple[tuple[str, float], ...]
    """Numbers by name; unknown ones are omitted."""
    optimizer: int | None = None
    """Index of its `TrainedOptimizer` record in a run; None if it involves no optimizer."""
    subject: str = ""
    """Object of the event, by the user's name: a model, an optimizer, a loss or a function. Empty
    if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What could not be measured or judged, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBatch:
    """A batch of a run that was stored on request."""

    step: int
    loader: str
    """Name of its data loader in the script; empty if it has none."""
    structure: str
    """JSON: lists of a kind and a value. `tensor` has an index in `tensors`, `tuple` and `list`
    have items, `dict` has pairs of key and item, `value` a number, a text, or null."""
    shapes: tuple[Shape, ...]
    """Shape of each tensor."""
    tensors: Sequence[bytes]
    """Elements of each tensor, row by row, in the byte order of the machine (little-endian)."""

    @property
    def size(self) -> int:
        """Number of bytes of its elements, which are read for it."""
        return sum(map(len, self.tensors))


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Recording:
    """All measurements. Indices in records refer to these tuples."""

    version: str
    """Version of gradscope that made it."""
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
    """A tuple, or a `NormTable` for a loaded run."""
    tensor_stats: tuple[TensorStat, ...]
    skipped: tuple[Skipped, ...]
    input_stats: tuple[InputStat, ...] = ()
    cuts: tuple[CutRecord, ...] = ()
    evidence: tuple[object, ...] = ()
    """Results of the probes: records of the kinds in `gradscope.recording.evidence`."""
    finished: bool = True
    """False for a run that continues, or was killed: its last events may be missing."""
    captured_steps: "tuple[CapturedStep, ...]" = ()
    """Backward passes of a run that were captured in detail, in order."""
    stored_gradients: tuple[StoredGradient, ...] = ()
    """Gradients stored on request, whole or as sketches; by step, then by parameter."""
    kept_batches: tuple[KeptBatch, ...] = ()
    """Batches stored on request, of the steps with trouble."""
    is_outline: bool = False
    """Whether norms by step, captured steps and stored gradients were left out on reading."""
    file: str = field(default="", compare=False)
    """File that it was read from, as it was named; empty if there is none."""
    untimed: tuple[range, ...] = field(default=(), compare=False)
    """Steps of which the whole duration is known, and not that of each call."""
    _evidence_of: dict[type, tuple[object, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Evidence of the kinds that were asked for: rules ask for the same ones many times."""

    def evidence_of(self, kind: type[Evidence]) -> tuple[Evidence, ...]:
        """Return the evidence of one kind, in the order in which it was recorded."""
        known = self._evidence_of.get(kind)
        if known is None:
            known = tuple(record for record in self.evidence if isinstance(record, kind))
            self._evidence_of[kind] = known
        return cast("tuple[Evidence, ...]", known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStep:
    """A detailed capture of one backward of a training run, recorded like an inspected step."""

    step: int
    """Step of the run that the backward led to."""
    order: int
    """Index of its event in that step."""
    recording: Recording
    """Recording of the one step (kind `step`), with the parameter names of the run. It has no
    captured steps of its own."""
    same_as: int | None = None
    """Number of the captured step, counted in the run, whose graph, modules and lines this one
    repeats. None if it repeats none."""
    own_evidence: tuple[object, ...] = ()
    """Evidence that is not repeated, if `same_as` is given."""
