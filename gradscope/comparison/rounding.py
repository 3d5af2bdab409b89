"""Which gradients are only what rounding leaves of a zero.

A bias before a batch normalisation, or that of an attention's keys, has a gradient of exactly zero
on paper. What a computation gives is rounding: a number that no two machines agree in. Measured
were up to 4e-6 of the gradient beside it in float32, and up to 1e-2 in bfloat16.
"""

from collections import Counter
from collections.abc import Mapping

from gradscope.comparison.side import Side, SideParameter
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord, Recording

_LIMITS = {"float16": 7e-3, "bfloat16": 5e-2}
"""Largest ratio of such a gradient to the gradients around it, by root mean square."""
_LIMIT = 3e-5
_SLACK, _LARGEST_SHARE = 10.0, 0.05
"""If one gradient is rounding, the other may exceed its limit by this factor, up to this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingLimits:
    """Limits below which a gradient is rounding, by the largest one of its module's parameters.

    A module with one parameter tells nothing: a gradient that has vanished is no rounding.
    """

    largest: Mapping[str, float]
    """Largest root mean square, by module."""
    share: float

    def holds(self, one: SideParameter, slack: float = 1.0) -> bool:
        """Return whether a gradient is below its limit, or below this multiple of it."""
        share = max(min(self.share * slack, _LARGEST_SHARE), self.share)
        # A module without a limit gets one that no gradient is below.
        return one.rms is not None and one.rms <= share * self.largest.get(one.module, -1.0)


def rounding_limits(side: Side) -> RoundingLimits:
    """Return the limits for the gradients of a side."""
    largest: dict[str, float] = {}
    counts = Counter(one.module for one in side.parameters if one.rms is not None)
    for one in side.parameters:
        if one.rms is not None and counts[one.module] > 1:
            largest[one.module] = max(one.rms, largest.get(one.module, 0.0))
    types = ("", *computed_in(side.report.recording))
    share = max(_LIMITS.get(dtype, _LIMIT) for dtype in types)
    return RoundingLimits(largest=largest, share=share)


def are_rounding(*pair: tuple[SideParameter, RoundingLimits]) -> bool:
    """Return whether two gradients are rounding: one clearly, and the other nearly."""
    (one, own), (other, its) = pair
    return (own.holds(one) and its.holds(other, _SLACK)) or (
        own.holds(one, _SLACK) and its.holds(other)
    )


def computed_in(recording: Recording) -> tuple[str, ...]:
    """Return the floating types of a model's parameters and computations."""
    nodes: list[NodeRecord] = list(recording.nodes)
    for captured in recording.captured_steps[:1]:
        nodes += captured.recording.nodes
    found = dict.fromkeys(record.shape.dtype for record in recording.parameters)
    found |= dict.fromkeys(
        shape.dtype for node in nodes for shape in node.outputs if shape is not None
    )
    return tuple(sorted(dtype for dtype in found if "float" in dtype))
