"""Training curves: loss, global gradient norm, size of the updates, learning rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.columns import Columns, Course, course
from gradscope.analysis.training_run import RunStep, TrainingRun

CurveKind = Literal["loss", "raw", "norm", "update", "rate"]
"""`raw` is the norm before clips, `norm` that which the optimizer found."""

_WHOLE = 0.999
"""Of a norm, from which on nothing of it was cut but for rounding."""


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


def measured_curves(steps: Sequence[RunStep]) -> dict[CurveKind, list[tuple[int, float]]]:
    """Return what was measured in the steps of one optimizer, each number with its step."""
    is_cut = any(map(_is_cut, steps))
    measured: dict[CurveKind, list[tuple[int, float | None]]] = {
        "loss": [(step.step, step.loss) for step in steps],
        "norm": [(step.step, step.grad_norm) for step in steps],
        "raw": [(step.step, step.norm_before_clip) for step in steps] if is_cut else [],
        "update": [(step.step, step.update_ratio) for step in steps],
        "rate": [(step.step, step.learning_rate) for step in steps],
    }
    known: dict[CurveKind, list[tuple[int, float]]] = {
        kind: [(step, value) for step, value in values if value is not None]
        for kind, values in measured.items()
    }
    # A learning rate that stays as it is stands in the optimizer's name.
    return {
        kind: values
        for kind, values in known.items()
        if len({value for _, value in values}) > (kind == "rate")
    }


def _curves(place: int, steps: list[RunStep], columns: Columns) -> Iterator[Curve]:
    for kind, known in measured_curves(steps).items():
        cells = columns.mean(known) if kind == "loss" else columns.largest(known)
        yield Curve(kind=kind, optimizer=place, course=course(known, cells))


def _is_cut(step: RunStep) -> bool:
    """Return whether a clip has left less of a norm than there was."""
    before, after = step.norm_before_clip, step.grad_norm
    return before is not None and after is not None and not after >= _WHOLE * before
