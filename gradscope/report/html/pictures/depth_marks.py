"""What stands along the depth: tensors and parameters, and in what state their gradients are."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gradscope.recording.records import GradientStat
from gradscope.report.html.pictures.forward_order import ForwardOrder
from gradscope.report.html.pictures.lettering import exact, hover
from gradscope.report.model import Report
from gradscope.report.names import shape_text, tensor_text
from gradscope.report.paths import shown_site
from gradscope.report.rows import ParameterRow, TensorRow

State = Literal["number", "broken", "zero", "none", "frozen", "unmeasured"]
"""What a gradient is: a number alone has a place on a logarithmic axis."""


Measure = Literal["norm", "rms", "weight", "update"]
"""Of a gradient the first two; the others are its norm and the update's over that of the weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A tensor or a parameter at its place in the forward."""

    place: int
    row: TensorRow | ParameterRow
    index: int
    """Of the row among its like, as the tables have them."""
    module: int | None

    @property
    def state(self) -> State:
        """What its gradient is."""
        return gradient_state(self.row)

    def value(self, measure: Measure) -> float | None:
        """Return a number that has a place on a logarithmic axis; None where there is none."""
        grad, found = self.row.grad, None
        match measure:
            case "norm":
                found = None if grad is None else grad.norm
            case "rms":
                found = None if grad is None else grad.rms
            case "weight" if isinstance(self.row, ParameterRow):
                found = self.row.grad_to_weight
            case "update" if isinstance(self.row, ParameterRow):
                found = self.row.update_to_weight
        return found if found and math.isfinite(found) else None


def gradient_state(row: TensorRow | ParameterRow) -> State:
    """Return what the gradient of a row is."""
    grad = row.grad
    if grad is None:
        return _absence(row)
    if grad.nonfinite or not math.isfinite(grad.norm):
        return "broken"
    return "zero" if grad.norm == 0.0 else "number"


def _absence(row: TensorRow | ParameterRow) -> State:
    if isinstance(row, TensorRow):
        return "none" if row.order is None else "unmeasured"
    match row.reach:
        case "none" | "frozen":
            return row.reach
        case _:
            return "unmeasured"


def tensor_marks(report: Report, order: ForwardOrder) -> list[Mark]:
    """Return a mark for each tensor that is not a parameter under another shape."""
    indices = {(row.node, row.slot): index for index, row in enumerate(report.tensors)}
    return [
        Mark(
            place=place,
            row=row,
            index=indices[row.node, row.slot],
            module=order.module_of(row.module),
        )
        for row, place in zip(order.tensors, order.tensor_places, strict=True)
    ]


def parameter_marks(report: Report, order: ForwardOrder) -> list[Mark]:
    """Return a mark for each parameter."""
    return [
        Mark(place=place, row=row, index=row.index, module=order.module_of(row.module))
        for row, place in zip(report.parameters, order.parameter_places, strict=True)
    ]


def mark_text(mark: Mark, root: str) -> str:
    """Return all that is told of a mark."""
    row = mark.row
    return hover(
        tensor_text(row) if isinstance(row, TensorRow) else row.name,
        (
            *_numbers(row),
            ("shape", shape_text(row)),
            ("line", shown_site(row.site, root)),
            ("reason", row.reason),
        ),
    )


def _numbers(row: TensorRow | ParameterRow) -> Iterator[tuple[str, str]]:
    if row.grad is None:
        return
    yield from _gradient(row.grad)
    if isinstance(row, ParameterRow):
        if row.grad_to_weight is not None:
            yield "/ weight", exact(row.grad_to_weight)
        if row.update_to_weight is not None:
            yield "update", f"{exact(row.update_to_weight)} of the weight"


def _gradient(grad: GradientStat) -> Iterator[tuple[str, str]]:
    yield "norm", exact(grad.norm)
    yield "rms", exact(grad.rms)
    yield "largest", exact(grad.absolute_maximum)
    if grad.zero_share:
        yield "zeros", f"{100 * grad.zero_share:.3g} %"
    if grad.nonfinite:
        yield "NaN, inf", f"{grad.nonfinite:,} of {grad.numel:,}"
