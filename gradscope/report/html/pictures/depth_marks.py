"""What stands along the depth: tensors and parameters, and in what state their gradients are."""

import math
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.report import Report
from gradscope.analysis.rows import ParameterRow, TensorRow
from gradscope.report.html.pictures.forward_order import ForwardOrder

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
    if grad.is_broken or not math.isfinite(grad.norm):
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
