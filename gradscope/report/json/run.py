"""Shapes of a training run."""

from collections.abc import Iterator
from typing import Annotated

from gradscope.analysis.columns import Columns
from gradscope.analysis.layers import module_norms
from gradscope.analysis.report import Report
from gradscope.analysis.timeline import Pattern
from gradscope.analysis.training_run import TrainingRun as TrainingRunFacts
from gradscope.analysis.view import shown_path
from gradscope.recording.evidence.training import EndingKind, RunEnding
from gradscope.report.documents.run_phrasing import pattern_text
from gradscope.report.json.parts import Where
from gradscope.report.json.shape import Count, Given, Of, Positive, Read, Shape, Share

_COLUMNS = 100
"""Largest number of columns of the norms of modules."""


class Moment(Shape):
    """An event of a step, or a group of them, and the number of its repetitions."""

    event: Annotated[Given, Of("word"), "Null of a group."]
    group: "tuple[Moment, ...]"
    least: Positive
    most: Positive


def _of_norms(name: str) -> Of:
    return Of(lambda pair, _: getattr(pair[1], name))


class ClippedNorms(Shape):
    """The norms that the clips of a pattern found."""

    event: Annotated[str, Of(lambda pair, _: pair[0])]
    median_norm: Annotated[
        float | None, _of_norms("median"), "Norm before clipping, of the finite ones."
    ]
    nonfinite: Annotated[Count, _of_norms("nonfinite")]
    calls: Annotated[Count, _of_norms("calls"), "Number of calls with a finite norm."]
    cut: Annotated[Count, _of_norms("cut"), "Calls whose norm was above the limit."]


def _pattern_text(pattern: Pattern, _: Report) -> str:
    return pattern_text(pattern)


class Window(Shape):
    """Events before an optimizer step, and the steps that follow equal events."""

    optimizer: Annotated[Count | None, "Index in training_run.optimizers; null without a step."]
    picture: Annotated[str, Of(_pattern_text), "For people: the moments as text."]
    moments: Annotated[tuple[Moment, ...], Of("folds")]
    clipped: Annotated[tuple[ClippedNorms, ...], Of("norms")]
    count: Positive
    first_step: Annotated[Count, Of("first")]
    location: Where
    is_typical: Annotated[bool, "Whether no other is as frequent for this optimizer."]


class EndingLocation(Shape):
    """A line of code, as far as it is known."""

    file: Annotated[str, Of(lambda ending, report: shown_path(ending.file, report.target.root))]
    line: int | None


def _known_location(ending: RunEnding, _: Report) -> RunEnding | None:
    return ending if ending.file else None


class Ending(Shape):
    """How a run ended, or its recording."""

    kind: Annotated[
        EndingKind,
        "stopped: by an option of gradscope; the script went on after limited, by an option, and "
        "after lost, as gradscope could not follow it.",
    ]
    exit_code: Annotated[int | None, Of("code")]
    exception: Annotated[Given, "Class of the exception."]
    message: Annotated[
        Given, "The first line of what the exception says, the option, or the reason."
    ]
    location: Annotated[EndingLocation | None, Of(_known_location)]


class Cost(Shape):
    """What watching has cost."""

    budget: Annotated[
        Share | None,
        "The share of the training's own time that watching may take; null for no limit.",
    ]
    share: Annotated[Share | None, "The share that it took; null where no step followed the first."]
    seconds: Share
    steps: Count
    measured: Annotated[Count, "Steps whose gradients were measured."]
    captured: Annotated[Count, "Steps that were captured, tensor by tensor."]
    repeated: Annotated[
        Count,
        "Steps that made the same calls as another, and of which nothing else was recorded.",
    ]


class RunOptimizer(Shape):
    """An optimizer, or several that one line made."""

    name: str
    title: str
    location: Where
    parameters: Count | None
    steps: Count
    made: Annotated[Positive, "Number of optimizers, made by one line, that the row represents."]


def each(name: str) -> Of:
    """Return what reads an attribute of every item."""
    read: Read = lambda items, _: [getattr(item, name) for item in items]  # noqa: E731
    return Of(read)


Curve = tuple[float | None, ...]


class Curves(Shape):
    """One number a step, all in the same order."""

    step: Annotated[tuple[Count, ...], each("step")]
    optimizer: Annotated[tuple[Count, ...], each("optimizer")]
    seconds: Annotated[Curve, each("seconds")]
    loss: Annotated[Curve, each("loss")]
    grad_norm: Annotated[Curve, each("grad_norm")]
    norm_before_clip: Annotated[
        Curve,
        each("norm_before_clip"),
        "The largest norm that a clip found; null without one.",
    ]
    update_ratio: Annotated[Curve, each("update_ratio")]
    learning_rate: Annotated[Curve, each("learning_rate")]


class LayerNorms(Shape):
    """The norms of a module."""

    module: Annotated[str, Of(lambda pair, _: pair[0].path)]
    norms: Annotated[
        Curve, Of(lambda pair, _: pair[1]), "One a column; null where nothing was measured."
    ]


def _layer_norms(columns: Columns, report: Report) -> Iterator[object]:
    return iter(module_norms(report, columns))


class Layers(Shape):
    """Largest gradient norms of neighbouring steps."""

    first_steps: Annotated[tuple[Count, ...], "The first step that each column stands for."]
    modules: Annotated[tuple[LayerNorms, ...], Of(_layer_norms)]


def _columns(run: TrainingRunFacts, _: Report) -> Columns:
    return Columns.over(run, _COLUMNS)


class Look(Shape):
    """A backward pass in which every tensor was recorded."""

    step: Count
    location: Where
    of: Annotated[str, Of("subject"), "What backward started from, as it is written there."]
    loss: float | None
    nodes: Count
    tensors: Count


class TrainingRun(Shape):
    """Curves hold one number a step, all in the same order."""

    steps: Annotated[Count, Of("step_count")]
    missing: Annotated[
        Count,
        "Steps of a long run of which only summaries are kept: no curve has a number of them.",
    ]
    seconds: float
    is_complete: Annotated[bool, "False where the recording ends before the run did."]
    loss_text: Annotated[
        str, "How a step's loss is made of those of its backward passes; empty for a single one."
    ]
    ending: Annotated[
        Ending | None,
        Of("recorded_ending"),
        "How the run ended, or its recording; null where that is not known.",
    ]
    cost: Annotated[Cost | None, "What watching has cost; null where that is not known."]
    optimizers: tuple[RunOptimizer, ...]
    curves: Annotated[Curves, Of("steps")]
    layers: Annotated[Layers, Of(_columns)]
    looks: Annotated[
        tuple[Look, ...],
        Of("captured_steps"),
        "The backward passes that were captured whole: gradscope report RECORDING --step N "
        "shows every tensor of them.",
    ]
