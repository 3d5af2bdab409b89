"""What a line that clips does, or what a largest norm would do, with all that is told of it."""

import math
from dataclasses import dataclass
from typing import Self

from gradscope.analysis.clipping.contributions import Contributions
from gradscope.analysis.clipping.limits import (
    Advice,
    Bin,
    Distribution,
    SweepRow,
    advise,
    histogram,
    sweep,
)
from gradscope.analysis.clipping.series import ClipPoint
from gradscope.recording.evidence.clipping import ClipMethod
from gradscope.recording.evidence.optimizers import OptimizerFamily
from gradscope.recording.records import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """What one method of clipping does to a target's gradients."""

    method: ClipMethod
    words: str
    limit: float
    is_asked: bool
    share: float
    """Share of the steps that the method cuts."""
    after: float
    """Median norm afterwards."""
    coefficient: float
    """Mean of norm afterwards over norm before."""
    cosine: float | None
    """Median, between all gradients before and after."""
    worst: float | None
    """The least of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether a clip stands where it should, in words."""

    is_right: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """The optimizer that uses what the clip leaves."""

    title: str
    """Title such as `AdamW(lr=0.001)`; empty if unknown."""
    family: OptimizerFamily
    rate: float | None
    """Last learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Gradients before and after a clip."""

    words: str
    """The call, or whose gradients they are where nothing clips."""
    site: Site | None
    method: ClipMethod | None
    """None where nothing clips."""
    limit: float | None
    limits: tuple[float, float] | None
    """The least and the largest, where it changes."""
    norm_type: float
    is_advised: bool
    """Whether the limit is the one advised here, and not the user's."""
    points: tuple[ClipPoint, ...]
    norms: Distribution | None
    """Distribution of the finite norms before clipping."""
    bins: tuple[Bin, ...]
    coefficients: Distribution | None
    """Coefficients of the points with a finite norm."""
    cosines: Distribution | None
    advice: Advice | None
    """Recommended limit for clipping by norm."""
    sweep: tuple[SweepRow, ...]
    contributions: Contributions
    methods: tuple[MethodRow, ...]
    checks: tuple[Check, ...]
    optimizer: OptimizerFacts
    shares_after: bool = False
    """Whether who makes the norm is told of the gradients after the clip, as those before were not
    measured one by one."""
    made: int = 0
    """Optimizer steps that were made between the points, of a target."""
    obstacle: str = ""
    """Why torch's own function refuses these gradients; empty where it does not."""

    @property
    def broken(self) -> tuple[ClipPoint, ...]:
        """The points whose norm is not finite."""
        return tuple(point for point in self.points if not math.isfinite(point.norm))

    @property
    def cut(self) -> tuple[ClipPoint, ...]:
        """The points with a finite norm that were cut."""
        return tuple(
            point for point in self.points if math.isfinite(point.norm) and point.coefficient < 1
        )

    @property
    def cut_share(self) -> float:
        """Their share of the points with a finite norm."""
        known = len(self.points) - len(self.broken)
        return len(self.cut) / known if known else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What is computed of a series of norms alone."""

    norms: Distribution | None
    bins: tuple[Bin, ...]
    coefficients: Distribution | None
    cosines: Distribution | None
    advice: Advice | None
    sweep: tuple[SweepRow, ...]

    @classmethod
    def of(
        cls, points: tuple[ClipPoint, ...], *, given: float | None, by_norm: bool, in_order: bool
    ) -> Self:
        """Return the numbers of some points.

        Args:
            points: Of each step.
            given: The largest norm that holds; None without one.
            by_norm: Whether it is the norm that is clipped, or nothing is.
            in_order: Whether the points were made one after another, by a model in training.
        """
        finite = [point for point in points if math.isfinite(point.norm)]
        norms = [point.norm for point in finite]
        advice = advise(norms, in_order=in_order) if by_norm else None
        return cls(
            norms=Distribution.of(norms),
            bins=histogram(norms),
            coefficients=Distribution.of(
                [one.coefficient for one in finite if math.isfinite(one.coefficient)]
            ),
            cosines=Distribution.of([one.cosine for one in finite if one.cosine is not None]),
            advice=advice,
            sweep=sweep(norms, given=given, advised=None if advice is None else advice.limit)
            if by_norm
            else (),
        )
