"""The effect of one line that clips, or of a maximum norm, with each module's share."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Self

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
from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.norms import norm_of_norms
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import ClipMethod, OptimizerFamily
from gradscope.recording.records import Recording, Site

Norms = Mapping[int, float]
"""Norms of one step, by parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Contribution of a parameter, or of a module with everything below it, to the global norm."""

    name: str
    share: float
    """Mean over the steps of the share of the squared norm, or of the power that the norm type
    uses.
    """
    largest: float
    """Share in the step where it is largest."""
    before: float
    """Median of the parameter's own norm before clipping."""
    after: float | None
    """Mean share after the clip; None if unknown."""
    leads: float
    """Share of the steps in which no other share is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """Shares in the global norm, the largest first."""

    parameters: tuple[Contribution, ...]
    modules: tuple[Contribution, ...]
    """Contributions by module below the model; each item of a module list counts separately."""
    norm_type: float
    """Type of the norm whose power is split into shares."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        before: Sequence[Norms],
        after: Sequence[Norms],
        norm_type: float = 2.0,
    ) -> Self:
        """Return the numbers of some steps.

        Args:
            recording: That of the parameters.
            before: By step: norms of the type that clipping goes by.
            after: The same after the clip; fewer where that is not known of all.
            norm_type: The type.
        """
        names = {record.index: record.name for record in recording.parameters}
        roots = _roots(recording)
        parts = {index: _part(name, roots) for index, name in names.items()}
        # A broken norm would make every share NaN, and without any gradient there is nothing to
        # share.
        finite = [
            step for step in before if all(map(math.isfinite, step.values())) and any(step.values())
        ]
        left = [step for step in after if all(map(math.isfinite, step.values()))]
        return cls(
            parameters=_contributions(names, finite, left, norm_type),
            modules=_contributions(parts, finite, left, norm_type),
            norm_type=norm_type,
        )

    @property
    def power(self) -> str:
        """Quantity that is split into shares, as text."""
        return "squared norm" if self.norm_type == 2 else "norm's power"

    @property
    def leader(self) -> Contribution | None:
        """Parameter that alone makes most of the norm; None without one."""
        first = next(iter(self.parameters), None)
        return (
            first if first is not None and len(self.parameters) > 1 and first.share > 0.5 else None
        )


def _roots(recording: Recording) -> frozenset[str]:
    """Return the names of models, as they begin the names of their parameters in a run."""
    return frozenset(
        record.path for record in recording.modules if record.parent is None and record.path
    )


def _part(name: str, roots: frozenset[str]) -> str:
    """Return the module that a parameter is counted to: `embedding`, `blocks.3`."""
    root = next((root for root in roots if name.startswith(f"{root}.")), "")
    parts = name[len(root) :].strip(".").split(".")[:-1]
    depth = 2 if len(parts) > 1 and parts[1].isdigit() else 1
    return ".".join([*([root] if root else []), *parts[:depth]])


def _contributions(
    names: Mapping[int, str], before: Sequence[Norms], after: Sequence[Norms], norm_type: float
) -> tuple[Contribution, ...]:
    norms = [_joined(names, step, norm_type) for step in before]
    left = [_joined(names, step, norm_type) for step in after]
    shares = [_shares(step, norm_type) for step in norms]
    peaks = [max(step.values(), default=0.0) for step in shares]
    found = []
    for name in dict.fromkeys(name for step in norms for name in step):
        own = [step.get(name, 0.0) for step in shares]
        kept = [step[name] for step in left if name in step]
        found.append(
            Contribution(
                name=name,
                share=fmean(own),
                largest=max(own),
                before=median(step[name] for step in norms if name in step),
                after=median(kept) if kept else None,
                # Without a gradient all shares are zero, and nothing leads.
                leads=fmean(share == peak > 0 for share, peak in zip(own, peaks, strict=True)),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.share))


def _joined(names: Mapping[int, str], step: Norms, norm_type: float) -> dict[str, float]:
    """Return the norm of all parameters that have a name together."""
    if len(set(names.values())) == len(names):
        return {names[index]: norm for index, norm in step.items()}
    together: dict[str, list[float]] = {}
    for index, norm in step.items():
        together.setdefault(names[index], []).append(norm)
    return {
        name: norms[0] if len(norms) == 1 else norm_of_norms(norms, norm_type)
        for name, norms in together.items()
    }


def _shares(step: Mapping[str, float], norm_type: float) -> dict[str, float]:
    """Return the share of each of the norm's power; of the largest norm all to the largest."""
    largest = max(step.values(), default=0.0)
    if not largest:
        return dict.fromkeys(step, 0.0)
    if math.isinf(norm_type):
        leaders = sum(norm == largest for norm in step.values())
        return {name: (norm == largest) / leaders for name, norm in step.items()}
    # Dividing by the largest keeps powers from overflowing.
    powers = {name: (norm / largest) ** norm_type for name, norm in step.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """The effect of one method of clipping on a target's gradients."""

    method: ClipMethod
    text: str
    limit: float
    is_asked: bool
    share: float
    """Share of the steps that the method clips."""
    after: float
    """Median norm after clipping."""
    coefficient: float
    """Mean of the norm after clipping over the norm before."""
    cosine: float | None
    """Median cosine between all gradients before and after clipping."""
    worst: float | None
    """Smallest cosine of all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether a clip is in the right position, as text."""

    is_right: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """The optimizer that uses the clipped gradients."""

    title: str
    """Title such as `AdamW(lr=0.001)`; empty if unknown."""
    family: OptimizerFamily
    rate: float | None
    """Last learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Gradients before and after a clip."""

    text: str
    """Text of the clip call, or the origin of the gradients if nothing clips."""
    site: Site | None
    method: ClipMethod | None
    """Method of the clips; None if nothing clips."""
    limit: float | None
    limits: tuple[float, float] | None
    """Smallest and largest limit, if the limit changes."""
    norm_type: float
    is_advised: bool
    """Whether the limit is the recommended one, not the user's."""
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
    """Whether the contributions are measured after the clip, because norms before it are unknown.
    """
    made: int = 0
    """Number of optimizer steps of a target between the points."""
    failure: str = ""
    """Reason why torch's own function rejects these gradients; empty if it accepts them."""

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
        """Share of the steps with a finite norm whose gradients were cut."""
        known = steps_of(self.points) - steps_of(self.broken)
        return steps_of(self.cut) / known if known else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers that are computed from a series of norms alone."""

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
