"""The steps of a recording in numbers, whoever has made them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from gradscope.analysis.norms import total_norm
from gradscope.analysis.report import Report
from gradscope.analysis.training_run import TrainingRun
from gradscope.export.table import ExportTable, Row
from gradscope.recording.records import Recording, StepKind


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """A row of the table of steps; None is what was not measured, or does not apply."""

    step: int
    kind: StepKind
    optimizer: str | None
    """What the script calls it, else its class; of a step of gradscope's own as torch shows it."""
    loss: float | None
    grad_norm: float | None
    """Over all parameters, as the optimizer saw their gradients."""
    grad_norm_before_clip: float | None
    learning_rate: float | None
    update_ratio: float | None
    seconds: float | None
    """Since the recording began."""


def step_numbers(report: Report) -> Iterator[StepNumbers]:
    """Yield the steps of a report's recording, in their order."""
    run = report.training_run
    yield from _of_inspection(report.recording) if run is None else _of_run(run)


def _of_run(run: TrainingRun) -> Iterator[StepNumbers]:
    labels = _labels([row.name or row.title for row in run.optimizers])
    for step in run.steps:
        yield StepNumbers(
            step.step,
            "run",
            labels[step.optimizer],
            step.loss,
            step.grad_norm,
            step.norm_before_clip,
            step.learning_rate,
            step.update_ratio,
            step.seconds,
        )


def _labels(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of optimizers that tell them apart: where several share one, by a number."""
    counts = Counter(names)
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if counts[name] == 1 else f"{name} {seen[name]}")
    return tuple(labels)


def _of_inspection(recording: Recording) -> Iterator[StepNumbers]:
    norms: dict[int, list[float]] = {}
    for stat in recording.parameter_stats:
        if stat.gradient is not None:
            norms.setdefault(stat.step, []).append(stat.gradient.norm)
    began: dict[int, float] = {}
    for event in recording.events:
        began.setdefault(event.step, event.seconds)
    for step in recording.steps:
        yield StepNumbers(
            step.index,
            step.kind,
            step.optimizer,
            step.loss,
            total_norm(norms.get(step.index, ())),
            None,
            None,
            None,
            began.get(step.index),
        )


def _rows(report: Report) -> Iterator[Row]:
    return map(astuple, step_numbers(report))


STEPS = ExportTable(
    name="steps",
    columns=(
        ("step", "integer"),
        ("kind", "text"),
        ("optimizer", "text"),
        ("loss", "number"),
        ("grad_norm", "number"),
        ("grad_norm_before_clip", "number"),
        ("learning_rate", "number"),
        ("update_ratio", "number"),
        ("seconds", "number"),
    ),
    rows=_rows,
)
