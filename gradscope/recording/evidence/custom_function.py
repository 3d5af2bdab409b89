"""How the backward of a custom `autograd.Function` compares with finite differences."""

from dataclasses import dataclass
from typing import ClassVar, Literal

CheckOutcome = Literal["right", "wrong", "chosen", "unchecked"]
"""`chosen`: the function has a gradient of its own choosing, as a straight-through estimator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCheck:
    """The gradient with respect to one input of a custom function, on the inputs that it saw."""

    name: str
    """As the function's forward calls it."""
    dtype: str
    """What it was compared in: `float64`, or `float32` where the function knows no other."""
    elements: int
    """How many were compared."""
    analytical: float
    """Norm of what backward returned for these elements."""
    numerical: float
    """Norm of the central differences."""
    deviation: float
    """Norm of the difference over the greater of the two norms, 0 to 2."""
    factor: float
    """What the numerical gradient must be multiplied by to come nearest to backward's."""
    residual: float
    """What then remains of the deviation: near 0, the factor is all that is wrong."""
    is_constant: bool = False
    """Whether backward returns the same whatever gradient it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFunctionRecord:
    """One custom function, checked in float64 on the inputs that the forward gave it."""

    table: ClassVar[str] = "custom_function"
    name: str
    """The class's."""
    operation: str
    """Of its nodes, as `SwishFunctionBackward`."""
    outcome: CheckOutcome
    reason: str | None
    """Why it was not checked, or what shows that its gradient is chosen."""
    applied: int | None
    """The line that applied it (a site)."""
    backward: int | None
    """The line on which its backward returns."""
    inputs: tuple[InputCheck, ...]
    """Those that were compared."""
