"""Finds the operation that broke gradients of a freed graph, from the affected parameters.

The operation lies before all parameters with non-finite gradients, and before none with finite
ones. Of the operations there in an earlier step, it is one whose derivative may be infinite.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gradscope.capture.source.lines import Line
from gradscope.step_capture.graph_trace import GraphTrace
from gradscope.step_capture.singular_points import is_singular

_FINITE_ITSELF = frozenset({"Acos", "Asin", "Atan2", "Norm", "Pow", "Prod", "Sqrt", "Std"})
"""Operations whose result is finite where their derivative is infinite."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """An operation that may have broken gradients."""

    operation: str
    line: Line | None
    is_likely: bool
    """Whether it may explain all non-finite gradients, and its own result is finite."""


def suspects(trace: GraphTrace, broken: Collection[int], finite: Collection[int]) -> list[Suspect]:
    """Return the operations that explain the non-finite gradients, the likeliest first.

    Args:
        trace: The operations of an earlier step.
        broken: Parameters (by `id`) with non-finite gradients.
        finite: Parameters with finite gradients.
    """
    all_broken, all_finite = _mask(trace, broken), _mask(trace, finite)
    found = [
        (_rank(trace, location, covers=reached & all_broken == all_broken), location)
        for location, reached in _reached(trace)
        if is_singular(trace.operations[location])
        and reached & all_broken
        and not reached & all_finite
    ]
    return [
        Suspect(trace.operations[location], trace.lines[location], rank >= 2)
        for rank, location in sorted(found, key=lambda one: (-one[0], -one[1]))
    ]


def _mask(trace: GraphTrace, parameters: Collection[int]) -> int:
    """Return the leaves among some parameters, as a bit mask."""
    leaves = ((position, leaf()) for position, leaf in enumerate(trace.leaves))
    return sum(
        1 << location for location, leaf in leaves if leaf is not None and id(leaf) in parameters
    )


def _reached(trace: GraphTrace) -> Iterator[tuple[int, int]]:
    """Yield each operation with the leaves that get gradients from it."""
    masks: list[int] = []
    for position, inputs in enumerate(trace.inputs):
        mask = 0
        for one in inputs:
            mask |= 1 << (-1 - one) if one < 0 else masks[one]
        masks.append(mask)
        yield position, mask


def _rank(trace: GraphTrace, location: int, *, covers: bool) -> int:
    base = trace.operations[location].partition("Backward")[0]
    # If the result of another one is not finite, the loss is not, unless where() discarded it.
    return covers + 2 * (base in _FINITE_ITSELF or _is_chosen_from(trace, location))


def _is_chosen_from(trace: GraphTrace, location: int) -> bool:
    users = (user for user, inputs in enumerate(trace.inputs) if location in inputs)
    return any(trace.operations[user].startswith("WhereBackward") for user in users)
