"""The steps of a recording in numbers, and as scalars under tags."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import chain

from gradscope.analysis.norms import total_norm
from gradscope.analysis.ranks.job_summary import RankSeries, rank_series
from gradscope.analysis.report import Report
from gradscope.analysis.run_optimizers import OptimizerRow
from gradscope.analysis.training_run import RunStep
from gradscope.export.streamed_run import StreamedRun
from gradscope.export.table import ExportTable, Row
from gradscope.frozen import dataclass
from gradscope.recording.norm_table import NormTable, norms_of
from gradscope.recording.records import Recording, StepKind
from gradscope.recording.streaming import RunInFile


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """A row of the table of steps; None is what was not measured, or does not apply."""

    step: int
    kind: StepKind
    optimizer: str | None
    """Name of the optimizer in the script, otherwise its class; for a step by gradscope, its call.
    """
    loss: float | None
    grad_norm: float | None
    """Global gradient norm, as the optimizer used the gradients."""
    grad_norm_before_clip: float | None
    learning_rate: float | None
    update_ratio: float | None
    seconds: float | None
    """Seconds since the recording began."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a recording, each with a table of the norms of its parameters."""

    recording: Recording
    numbers: Iterator[tuple[StepNumbers, NormTable]]
    are_of_several: bool = False
    """Whether several optimizers make them."""


def _steps_of(source: Report | RunInFile) -> _Steps:
    """Return the steps of a report's recording, or of a run in its file."""
    if isinstance(source, RunInFile):
        streamed = StreamedRun.of(source)
        return _of_run(source.structure, streamed.rows, streamed.steps())
    recording, run = source.recording, source.training_run
    norms = norms_of(recording)
    if run is None:
        return _Steps(recording, ((one, norms) for one in _of_inspection(recording)))
    return _of_run(recording, run.optimizers, ((step, norms) for step in run.steps))


def _of_run(
    recording: Recording,
    optimizers: Sequence[OptimizerRow],
    steps: Iterable[tuple[RunStep, NormTable]],
) -> _Steps:
    labels = _labels([row.name or row.title for row in optimizers])
    numbers = ((_numbers(step, labels), norms) for step, norms in steps)
    return _Steps(recording, numbers, sum(row.steps > 0 for row in optimizers) > 1)


def _numbers(step: RunStep, labels: Sequence[str]) -> StepNumbers:
    return StepNumbers(
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


def _rows(source: Report | RunInFile) -> Iterator[Row]:
    return (astuple(numbers) for numbers, _ in _steps_of(source).numbers)


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
    streamed=_rows,
)


@dataclass(frozen=True, slots=True)
class Scalars:
    """The scalars of one step."""

    step: int
    seconds: float
    """Seconds since the recording began; 0 if unknown."""
    values: tuple[tuple[str, float], ...]
    """Values by tag. Values that were not measured are omitted."""


def scalars(source: Report | RunInFile, ranks: Iterable[Recording] = ()) -> Iterator[Scalars]:
    """Yield the scalars of a report's recording, or of a run in its file.

    `global/…` holds those of the whole step, under the name of its optimizer where there are
    several; `module_grad_norm/…` those of modules, and `parameter_grad_norm/…`,
    `parameter_update_ratio/…` and `parameter_weight_norm/…` those of single parameters;
    `rank_loss/…` and `rank_grad_norm/…` those of the ranks of a job. TensorBoard sorts them by
    these words.

    Args:
        source: The report of a recording, or a run in its file.
        ranks: The recording of each rank of a job.
    """
    steps = _steps_of(source)
    tags = _Tags(steps.recording)
    of_ranks = rank_scalars(ranks)
    for one, norms in steps.numbers:
        prefix = f"global/{one.optimizer}/" if steps.are_of_several else "global/"
        values = (
            *_of_step(one, prefix),
            *of_ranks.get(one.step, ()),
            *tags.of_rows(norms, norms.rows_of(one.step)),
        )
        yield Scalars(one.step, one.seconds or 0.0, values)


def _of_step(one: StepNumbers, prefix: str) -> Iterator[tuple[str, float]]:
    for name in ("loss", "grad_norm", "grad_norm_before_clip", "learning_rate", "update_ratio"):
        value: float | None = getattr(one, name)
        if value is not None:
            yield prefix + name, value


class _Tags:
    """The tags of parameters, and of the modules that hold several."""

    def __init__(self, recording: Recording) -> None:
        self._parameters = [
            (
                f"parameter_grad_norm/{name}",
                f"parameter_weight_norm/{name}",
                f"parameter_update_ratio/{name}",
            )
            for name in (record.name for record in recording.parameters)
        ]
        self._modules = _modules_of(recording)
        self._module_tags = {
            module: f"module_grad_norm/{recording.modules[module].path}"
            for module in {module for modules in self._modules for module in modules}
        }

    def of_rows(self, norms: NormTable, rows: range) -> Iterator[tuple[str, float]]:
        """Yield the scalars of the parameters in some rows, and of the modules that hold them."""
        by_module: dict[int, list[float]] = {}
        for row in rows:
            parameter, norm = norms.parameters[row], norms.gradients[row]
            of_gradient, of_weight, of_update = self._parameters[parameter]
            if not norm < 0:
                yield of_gradient, norm
                for module in self._modules[parameter]:
                    by_module.setdefault(module, []).append(norm)
            update, weight = norms.updates[row], norms.weights[row]
            if not update < 0:  # else the weights are those of a step before
                yield of_weight, weight
                if weight:
                    yield of_update, update / weight
        for module, found in by_module.items():
            total = total_norm(found)
            if total is not None:
                yield self._module_tags[module], total


def _modules_of(recording: Recording) -> list[tuple[int, ...]]:
    """Return, by parameter, the modules that hold it and others, but for whole models."""
    holders: list[tuple[int, ...]] = []
    counts: dict[int, int] = {}
    for record in recording.parameters:
        found = []
        module: int | None = record.module
        while module is not None and recording.modules[module].parent is not None:
            found.append(module)
            counts[module] = counts.get(module, 0) + 1
            module = recording.modules[module].parent
        holders.append(tuple(found))
    # A module with one parameter would repeat its curve.
    return [tuple(one for one in found if counts[one] > 1) for found in holders]


def _rank_rows(ranks: Iterable[Recording]) -> Iterator[Row]:
    """Yield a row for each step of each rank."""
    for one in _series_of(ranks):
        losses, norms = dict(one.losses), dict(one.norms)
        for step in sorted({*losses, *norms}):
            yield (step, one.rank, losses.get(step), norms.get(step), one.is_part)


def _series_of(ranks: Iterable[Recording]) -> Iterator[RankSeries]:
    return chain.from_iterable(rank_series([rank]) for rank in ranks)


RANKS = ExportTable(
    name="ranks",
    columns=(
        ("step", "integer"),
        ("rank", "integer"),
        ("loss", "number"),
        ("grad_norm", "number"),
        ("is_part", "flag"),
    ),
    rows=lambda report: _rank_rows(report.ranks) if len(report.ranks) > 1 else iter(()),
    streamed=lambda _: iter(()),
    needs_order=False,
    of_ranks=_rank_rows,
)


def rank_scalars(ranks: Iterable[Recording]) -> Mapping[int, list[tuple[str, float]]]:
    """Return the loss and the gradient norm of each rank under their tags, by step."""
    found: dict[int, list[tuple[str, float]]] = {}
    for one in _series_of(ranks):
        for tag, values in (("rank_loss", one.losses), ("rank_grad_norm", one.norms)):
            for step, value in values:
                found.setdefault(step, []).append((f"{tag}/{one.rank}", value))
    return found
