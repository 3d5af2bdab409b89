"""How the gradient of each parameter went over the steps of a run."""

import math
from dataclasses import dataclass
from statistics import median

from gradscope.recording.evidence.trained_optimizer import TrainedOptimizer
from gradscope.recording.norm_table import NOT_MEASURED, NormTable, norms_of
from gradscope.recording.records import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCourse:
    """What was measured of a parameter, from the first step to the last."""

    last: float | None
    """The norm that was measured last; None where it had no gradient then."""
    middle: float | None
    """Median of the finite norms."""
    largest: float | None
    """Of the finite norms."""
    largest_step: int | None
    first_nonfinite: int | None
    """The first step with a NaN or an infinity in the gradient."""
    without: int
    """Steps without a gradient."""
    zero: int
    """Steps with a gradient that was exactly zero throughout."""
    update: float | None
    """Median of the norm of a step's change over that of the weights."""


def parameter_courses(recording: Recording) -> dict[int, ParameterCourse]:
    """Return the course of every parameter that was measured, by parameter."""
    norms = norms_of(recording)
    rows: dict[int, list[int]] = {}
    for row, parameter in enumerate(norms.parameters):
        rows.setdefault(parameter, []).append(row)
    return {parameter: _course(norms, places) for parameter, places in rows.items()}


def _course(norms: NormTable, rows: list[int]) -> ParameterCourse:
    gradients = [norms.gradients[row] for row in rows]
    finite = [norm for norm in gradients if 0 <= norm < math.inf]
    largest = max(finite, default=None)
    broken = (row for row, norm in zip(rows, gradients, strict=True) if not math.isfinite(norm))
    first_broken = next(broken, None)
    ratios = [
        norms.updates[row] / norms.weights[row]
        for row in rows
        if norms.updates[row] != NOT_MEASURED and norms.weights[row]
    ]
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return ParameterCourse(
        last=None if gradients[-1] < 0 else gradients[-1],
        middle=median(finite) if finite else None,
        largest=largest,
        largest_step=None if largest is None else norms.steps[rows[gradients.index(largest)]],
        first_nonfinite=None if first_broken is None else norms.steps[first_broken],
        without=sum(norm < 0 for norm in gradients),
        zero=gradients.count(0.0),
        update=median(known) if known else None,
    )


def optimizer_names(recording: Recording) -> dict[int, str]:
    """Return the optimizers that hold each parameter, by parameter."""
    found: dict[int, dict[str, None]] = {}
    for record in recording.evidence_of(TrainedOptimizer):
        for parameter in record.parameters:
            found.setdefault(parameter, {})[record.name or record.class_name] = None
    return {parameter: ", ".join(names) for parameter, names in found.items()}
