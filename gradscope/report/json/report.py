"""A report of one step or of a run as JSON, by `gradscope/schemas/report-1.json`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from gradscope.analysis.attention import logit_series, routers
from gradscope.analysis.clipping.clipping import Clipping as ClippingFacts
from gradscope.analysis.losses import Outcome
from gradscope.analysis.losses import Overfit as OverfitFacts
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.rows import OtherStep as OtherStepRow
from gradscope.recording.records import EventRecord, NodeKind, Reach, Site
from gradscope.report.documents.accumulation import Accumulation as AccumulationFacts
from gradscope.report.finding_phrasing import next_of_report
from gradscope.report.json.clipping import Clipping
from gradscope.report.json.parts import (
    Environment,
    Finding,
    Location,
    Meta,
    Rules,
    Subject,
    Summary,
    Where,
)
from gradscope.report.json.run import TrainingRun, Window
from gradscope.report.json.sections import Accumulation, Experts, Logits, Ranks
from gradscope.report.json.shape import (
    INLINE,
    Count,
    Named,
    Object,
    Of,
    Positive,
    Shape,
    object_text,
)


def _still(found: OverfitFacts, report: Report) -> list[str]:
    return [report.recording.parameters[index].name for index in found.still]


def _moved(found: OverfitFacts, report: Report) -> Iterator[tuple[str, float | None]]:
    names = (parameter.name for parameter in report.recording.parameters)
    return zip(names, found.record.moved, strict=True)


class Overfit(Shape, grows=True):
    """A training on one batch, undone afterwards."""

    outcome: Annotated[Outcome, "Result of the training."]
    steps: Annotated[Count, "Optimizer steps made."]
    wanted_steps: Annotated[Positive, Of("record.wanted"), "Largest number of steps."]
    optimizer: Annotated[str, Of("record.optimizer")]
    learned_share: Annotated[
        float,
        Of("record.learned"),
        "Share of the first loss at which the batch counts as learned.",
    ]
    losses: Annotated[
        tuple[float, ...], Of("record.losses"), "Loss before each step, and after the last."
    ]
    stuck_since: Annotated[
        int | None, Of("since"), "Step after which the loss made no progress; null unless stuck."
    ]
    unmoved: Annotated[
        tuple[str, ...], Of(_still), "Parameters that require grad and did not move."
    ]
    moved: Annotated[
        dict[str, float | None],
        Of(_moved),
        "Distance that each parameter moved over the norm it had; null if it requires no grad.",
    ]


class Gradient(Shape):
    """Null means not measured: for a run, everything except the norm."""

    norm: float
    rms: float
    absolute_maximum: float | None
    zero_share: Annotated[float | None, "Share of elements that are exactly zero, 0 to 1."]
    nonfinite: Annotated[Count | None, "Elements that are NaN or infinite."]
    numel: Count
    sampled: Annotated[bool | None, "Whether zero_share comes from a sample."]
    lowest_exponent: int | None
    magnitudes: Annotated[
        tuple[Count, ...] | None,
        "Elements of a sample by octave: entry i counts "
        "2**(lowest_exponent + i) <= abs(g) < 2**(lowest_exponent + i + 1).",
    ]


class Parameter(Shape):
    """A parameter and its gradient."""

    name: str
    aliases: tuple[str, ...]
    module: str
    location: Where
    shape: tuple[Count, ...]
    dtype: str
    device: str
    numel: Count
    requires_grad: bool
    reach: Annotated[
        Reach | Literal["unknown"],
        "`none`: backward left no gradient; `unknown`: no backward was measured.",
    ]
    reason: str | None
    gradient: Annotated[Gradient | None, Of("grad")]
    weight_norm: float | None
    grad_to_weight: float | None
    update_norm: float | None
    update_to_weight: float | None
    optimizer_group: Count | None
    depth: Count | None


class Call(Shape):
    """A call of a module, and the gradients at its ends."""

    call: Count
    location: Where
    output_grad_norm: float | None
    input_grad_norm: float | None
    gain: Annotated[float | None, "input_grad_norm over output_grad_norm."]


def _parent(row: ModuleRow, report: Report) -> str | None:
    return None if row.parent is None else report.modules[row.parent].path


class Module(Shape):
    """A module, its sums and its calls."""

    path: str
    aliases: tuple[str, ...]
    class_name: Annotated[str, Named("class")]
    parent: Annotated[str | None, Of(_parent)]
    in_model: bool
    training: bool
    location: Where
    parameters: Count
    trainable_parameters: Count
    own_parameters: Count
    numel: Count
    own_numel: Count
    grad_norm: float | None
    weight_norm: float | None
    calls: tuple[Call, ...]


class Tensor(Shape):
    """A tensor of the forward and the gradient with respect to it."""

    operation: str
    node_kind: Annotated[NodeKind, Of("kind")]
    module: str | None
    call: Count | None
    location: Where
    shape: tuple[Count, ...] | None
    dtype: str | None
    depth: Count
    order: Count | None
    node: Count
    slot: Count
    gradient: Annotated[Gradient | None, Of("grad")]
    reason: str | None


class Widest(Shape):
    """The depth with the most nodes."""

    depth: Count
    nodes: Count


class DepthParameters(Shape):
    """Number of parameters that backward reaches at a depth."""

    depth: Annotated[Count, Of(lambda pair, _: pair[0])]
    parameters: Annotated[Count, Of(lambda pair, _: pair[1])]


class Graph(Shape):
    """The structure of the backward graph."""

    nodes: Count
    edges: Count
    depth: Count
    leaves: Count
    views: Count
    operations: dict[str, Count]
    widest: Widest | None
    parameters_by_depth: tuple[DepthParameters, ...]


def _site(event: EventRecord, report: Report) -> Site | None:
    return None if event.site is None else report.recording.sites[event.site]


def _in_run(event: EventRecord, report: Report) -> EventRecord | None:
    return None if report.training_run is None else event


class EventOwner(Shape):
    """Whose event it is."""

    optimizer: Annotated[Count | None, "Index of the optimizer concerned, in a training run."]
    subject: Annotated[str, "Subject of the event in a training run, as the user knows it."]


class Event(Shape):
    """Something that happened in a step."""

    step: Count
    order: Count
    event: Annotated[str, Of("kind")]
    seconds: float
    location: Annotated[Location | None, Of(_site)]
    numbers: dict[str, float]
    owner: Annotated[EventOwner | None, INLINE, Of(_in_run)]


def _by_name(step: OtherStepRow, report: Report) -> Iterator[tuple[str, float | None]]:
    names = (row.name for row in report.parameters)
    return zip(names, step.parameters, strict=True)


class OtherStep(Shape):
    """A step made on a snapshot."""

    step: Count
    loss: float | None
    grad_norm: float | None
    optimizer: str | None
    parameters: Annotated[dict[str, float | None], Of(_by_name), "Gradient norm by parameter."]


class Skipped(Shape):
    """What could not be measured, and why."""

    what: str
    reason: str


class RunParts(Shape):
    """What only the report of a training run has."""

    timeline: Annotated[
        tuple[Window, ...],
        Of("patterns"),
        "Only of a training run: what its steps are made of, by optimizer, the most frequent "
        "first.",
    ]
    training_run: Annotated[TrainingRun, Of()]


class JobParts(Shape):
    """What only the report of a distributed job has."""

    ranks: Annotated[Ranks, Of()]


class Whole(Shape, grows=True):
    """A step, or a training run."""

    meta: Annotated[Meta, INLINE, Of()]
    environment: Environment
    target: Subject
    summary: Summary
    parameters: tuple[Parameter, ...]
    modules: tuple[Module, ...]
    tensors: tuple[Tensor, ...]
    graph: Graph
    events: tuple[Event, ...]
    clipping: Annotated[
        Clipping | None,
        Of(lambda report, _: ClippingFacts.of(report.recording)),
        "What clipping does to the gradients, or would do; null where the recording tells nothing "
        "of it.",
    ]
    accumulation: Annotated[
        Accumulation | None,
        Of(lambda report, _: AccumulationFacts.of(report.recording)),
        "The accumulated gradients of micro-batches beside the full batch's; null where "
        "--micro-batches was not given.",
    ]
    overfit: Annotated[
        Overfit | None,
        Of(lambda report, _: OverfitFacts.of(report.recording)),
        "The training on one batch; null where --overfit was not given.",
    ]
    logits: Annotated[
        tuple[Logits, ...],
        Of(lambda report, _: logit_series(report.recording)),
        "Logits before softmaxes: of attention, and of the outputs.",
    ]
    experts: Annotated[
        tuple[Experts, ...],
        Of(lambda report, _: routers(report.recording)),
        "Choices of experts by the routers of mixtures.",
    ]
    run: Annotated[RunParts | None, INLINE, Of("training_run")]
    job: Annotated[JobParts | None, INLINE]
    training: Annotated[tuple[OtherStep, ...], "Steps on the way to the judged one."]
    probes: Annotated[tuple[OtherStep, ...], "Steps on from the judged one, made on a snapshot."]
    skipped: tuple[Skipped, ...]
    rules: Rules
    findings: tuple[Finding, ...]
    next_command: Annotated[
        str | None,
        Named("next"),
        Of(lambda report, _: next_of_report(report) or None),
        "Command to run next; null where there is none.",
    ]


LINES: Mapping[str, str] = {
    "summary": "summary",
    "graph": "graph",
    "parameters": "parameter",
    "modules": "module",
    "tensors": "tensor",
    "events": "event",
    "timeline": "timeline",
    "training_run": "training_run",
    "ranks": "ranks",
    "accumulation": "accumulation",
    "overfit": "overfit",
    "logits": "logits",
    "experts": "experts",
    "clipping": "clipping",
    "training": "training",
    "probes": "probe",
    "skipped": "skipped",
    "rules": "rules",
    "findings": "finding",
}
"""Kinds of lines by key, in the order of the lines."""


def report_object(report: Report) -> Object:
    """Return the whole report."""
    return Whole.write(report, report)


def render_json(report: Report) -> str:
    """Return the whole report, one row a line: two reports can be compared by `diff`."""
    return object_text(report_object(report))
