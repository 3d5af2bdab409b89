"""Which gradients are only what rounding leaves of a zero.

A bias before a batch normalisation, or that of an attention's keys, has a gradient of exactly zero
on paper. What a computation gives is rounding: a number that no two machines agree in. Measured
were up to 4e-6 of the gradient beside it in float32, and up to 1e-2 in bfloat16.
"""

from collections.abc import Mapping

from gradscope.comparison.side import Side, SideParameter
from gradscope.recording.records import NodeRecord, Recording

_LIMITS = {"float16": 7e-3, "bfloat16": 5e-2}
"""Which part of the gradients around it such a gradient may be, root mean squares compared."""
_LIMIT = 3e-5


def rounding_limits(side: Side) -> Mapping[str, float]:
    """Return by module: the root mean square below which a gradient of it is rounding.

    It is measured by the largest one of the module's own parameters. A module with one parameter
    tells nothing: a gradient that has vanished is no rounding.
    """
    largest: dict[str, float] = {}
    counts: dict[str, int] = {}
    for one in side.parameters:
        if one.rms is not None:
            largest[one.module] = max(one.rms, largest.get(one.module, 0.0))
            counts[one.module] = counts.get(one.module, 0) + 1
    limit = max(_LIMITS.get(dtype, _LIMIT) for dtype in ("", *computed_in(side.report.recording)))
    return {module: limit * rms for module, rms in largest.items() if counts[module] > 1}


def is_rounding(one: SideParameter, limits: Mapping[str, float]) -> bool:
    """Return whether the gradient of a parameter is below the limit of its module."""
    return one.rms is not None and one.rms <= limits.get(one.module, -1.0)


def computed_in(recording: Recording) -> tuple[str, ...]:
    """Return the floating types of a model's parameters and of what it computes with them."""
    nodes: list[NodeRecord] = list(recording.nodes)
    for look in recording.looks[:1]:
        nodes += look.recording.nodes
    found = dict.fromkeys(record.shape.dtype for record in recording.parameters)
    found |= dict.fromkeys(
        shape.dtype for node in nodes for shape in node.outputs if shape is not None
    )
    return tuple(sorted(dtype for dtype in found if "float" in dtype))
