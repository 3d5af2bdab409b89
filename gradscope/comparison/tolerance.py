"""Limits of the difference between recordings above which it is a regression."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from gradscope.comparison.side import Side, SideParameter
from gradscope.frozen import dataclass
from gradscope.options.declaration import Option
from gradscope.recording.finding import Severity
from gradscope.recording.records import NodeRecord, Recording

DEFAULT_NORM = 0.1
"""bfloat16 changes the norms of a model's gradients by up to 7 %; other threads or another order of
a sum by 1e-5. A term that is missing or counted twice changes them by more.
"""
DEFAULT_LOSS = 0.1
DEFAULT_COSINE = 0.9
RANK_NORM = 1e-5
"""Allowed relative change of a norm between ranks, whose reduced gradients differ only by rounding.
"""


_PANEL = "Regressions"


_LIMITS = {"float16": 7e-3, "bfloat16": 5e-2}
"""Largest ratio of such a gradient to the gradients around it, by root mean square."""
_LIMIT = 3e-5
_SLACK, _LARGEST_SHARE = 10.0, 0.05
"""If one gradient is rounding, the other may exceed its limit by this factor, up to this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Limits of what passes."""

    norm: Annotated[
        float | None,
        Option(
            "--tolerance",
            min=0.0,
            metavar="X",
            help="Allowed relative change of a gradient norm: 0.1 allows a factor of 1.1 up or "
            "down. Default: 0.1, or 1e-5 between ranks.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = None
    """None uses `DEFAULT_NORM`, or `RANK_NORM` between ranks."""
    loss: Annotated[
        float,
        Option(
            "--max-loss-increase",
            min=0.0,
            metavar="X",
            help="Allowed relative increase of the loss; for training runs, of the final loss. "
            f"Default: {DEFAULT_LOSS}.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = DEFAULT_LOSS
    cosine: Annotated[
        float,
        Option(
            "--min-cosine",
            min=-1.0,
            max=1.0,
            metavar="X",
            help=f"Smallest allowed cosine between stored gradients. Default: {DEFAULT_COSINE}.",
            panel=_PANEL,
            show_default=False,
        ),
    ] = DEFAULT_COSINE
    fail_level: Annotated[
        Severity,
        Option(help="Lowest level at which a new finding is a regression.", panel=_PANEL),
    ] = "error"

    def norm_limit(self, *, of_ranks: bool) -> float:
        """Return the allowed factor of a norm's growth or decrease, less one."""
        return self.norm if self.norm is not None else RANK_NORM if of_ranks else DEFAULT_NORM


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
