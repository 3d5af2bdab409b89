"""Training curves: loss, global gradient norm, and size of the updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gradscope.report.run.columns import Columns, Course, course
from gradscope.report.run.training_run import RunStep, TrainingRun

CurveKind = Literal["loss", "norm", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number over the steps of one optimizer."""

    kind: CurveKind
    optimizer: int
    """Place among the run's optimizers."""
    course: Course


def curves(run: TrainingRun, columns: Columns, optimizers: int) -> tuple[Curve, ...]:
    """Return the curves of the first so many optimizers; none that was never measured."""
    by_optimizer: dict[int, list[RunStep]] = {}
    for step in run.steps:
        by_optimizer.setdefault(step.optimizer, []).append(step)
    return tuple(
        curve
        for place in sorted(by_optimizer)[:optimizers]
        for curve in _curves(place, by_optimizer[place], columns)
    )


def _curves(place: int, steps: list[RunStep], columns: Columns) -> Iterator[Curve]:
    losses = [(step.step, step.loss) for step in steps if step.loss is not None]
    norms = [(step.step, step.grad_norm) for step in steps if step.grad_norm is not None]
    ratios = [(step.step, step.update_ratio) for step in steps if step.update_ratio is not None]
    if losses:
        told = course(losses, columns.mean(losses))
        yield Curve(kind="loss", optimizer=place, course=told)
    if norms:
        told = course(norms, columns.largest(norms))
        yield Curve(kind="norm", optimizer=place, course=told)
    if ratios:
        told = course(ratios, columns.largest(ratios))
        yield Curve(kind="update", optimizer=place, course=told)
