"""Loss and gradient norm of all sides, step by step, and where they part."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal, get_args

from gradscope.analysis.training_run import TrainingRun
from gradscope.comparison.side import Side
from gradscope.frozen import dataclass

CurveKind = Literal["loss", "norm"]
KINDS: tuple[CurveKind, ...] = get_args(CurveKind)

_LAST_SHARE, _LAST_MOST = 10, 100
"""A run's end is the mean over the last tenth of its steps, up to a maximum number."""
_LEAST_LOSS = 0.01
"""Share of a run's first loss below which a loss counts as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCurve:
    """A number over the steps of one side; steps without a measurement are omitted."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where a side departs from the base, over the steps that both have measured."""

    common: int
    """Number of common steps."""
    first_different: int | None
    """First step in which the numbers differ."""
    first_beyond: int | None
    """First step in which they differ by more than the tolerance."""
    base_end: float
    """Mean of the base over the last tenth of these steps, at most 100."""
    end: float
    """Mean of the side over the same steps."""
    scale: float
    """Unit of the difference between both ends: the base's end, at least a hundredth of the first
    loss.
    """

    @property
    def increase(self) -> float:
        """Relative increase of the side's end; NaN if unknown."""
        if self.end == self.base_end:
            return 0.0
        return (self.end - self.base_end) / self.scale if self.scale else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCurve:
    """A number over the steps of an optimizer, in each side."""

    kind: CurveKind
    optimizer: str
    """Name of the optimizer in the base; empty if the base has only one."""
    sides: tuple[SideCurve | None, ...]
    """Curve of each side; None if the side has no such optimizer, or did not measure the number."""
    partings: tuple[Parting | None, ...]
    """Where each curve departs from the base's; None for the base, and without common steps."""


def compared_curves(
    sides: Sequence[Side], tolerance: Mapping[CurveKind, float]
) -> tuple[ComparedCurve, ...]:
    """Return the curves that two sides at least have, by optimizer.

    Optimizers are matched by their position: those that made a step first are the first.

    Args:
        sides: The base first.
        tolerance: By which share numbers may differ.
    """
    measured = [_curves(side) for side in sides]
    base = sides[0].report.training_run
    positions = sorted({position for found in measured for position, _ in found})
    curves = []
    for position in positions:
        for kind in KINDS:
            of_sides = tuple(found.get((position, kind)) for found in measured)
            if sum(one is not None for one in of_sides) < 2:
                continue
            curves.append(
                ComparedCurve(
                    kind=kind,
                    optimizer=_name(base, position),
                    sides=of_sides,
                    partings=tuple(
                        None if turn == 0 else _parting(of_sides[0], one, kind, tolerance[kind])
                        for turn, one in enumerate(of_sides)
                    ),
                )
            )
    return tuple(curves)


def _name(run: TrainingRun | None, position: int) -> str:
    """Return the name of an optimizer, with a number if others have the same name."""
    if run is None or len(run.optimizers) < 2 or position >= len(run.optimizers):
        return ""
    names = [row.name or row.title for row in run.optimizers]
    name = names[position]
    return name if names.count(name) == 1 else f"{name} ({names[: position + 1].count(name)})"


_Curves = dict[tuple[int, CurveKind], SideCurve]


def _curves(side: Side) -> _Curves:
    """Return the curves of a side by optimizer; where gradscope made the steps, of that one."""
    points: dict[tuple[int, CurveKind], list[tuple[int, float]]] = {}
    for position, step, loss, norm in _points(side):
        for kind, value in zip(KINDS, (loss, norm), strict=True):
            if value is not None:
                points.setdefault((position, kind), []).append((step, value))
    return {
        key: SideCurve(steps=tuple(s for s, _ in found), values=tuple(v for _, v in found))
        for key, found in points.items()
    }


def _points(side: Side) -> Iterable[tuple[int, int, float | None, float | None]]:
    """Yield optimizer, step, loss and norm."""
    report = side.report
    run = report.training_run
    if run is not None:
        for step in run.steps:
            yield step.optimizer, step.step, step.loss, step.grad_norm
    elif report.training:
        for one in report.training:
            yield 0, one.step, one.loss, one.grad_norm
        # The judged step comes after the training steps, and belongs to the curve.
        if report.summary.step is not None:
            yield 0, report.summary.step, report.summary.loss, report.summary.grad_norm


def _parting(
    base: SideCurve | None, other: SideCurve | None, kind: CurveKind, tolerance: float
) -> Parting | None:
    if base is None or other is None:
        return None
    theirs = dict(zip(other.steps, other.values, strict=True))
    # Bounded recordings of long runs keep different steps.
    common = [
        (step, value, theirs[step])
        for step, value in zip(base.steps, base.values, strict=True)
        if step in theirs
    ]
    if not common:
        return None
    # Near zero, noise alone changes a loss by large factors.
    least = _LEAST_LOSS * abs(common[0][1]) if kind == "loss" else 0.0
    ends = common[-min(math.ceil(len(common) / _LAST_SHARE), _LAST_MOST) :]
    base_end = _mean([value for _, value, _ in ends])
    return Parting(
        common=len(common),
        first_different=next((s for s, a, b in common if not _same(a, b)), None),
        first_beyond=next((s for s, a, b in common if not _near(a, b, tolerance, least)), None),
        base_end=base_end,
        end=_mean([value for _, _, value in ends]),
        scale=max(abs(base_end), least),
    )


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if all(map(math.isfinite, values)) else math.nan


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _near(base: float, other: float, tolerance: float, least: float) -> bool:
    """Return whether two numbers differ by no more than a share of the smaller one."""
    if _same(base, other):
        return True
    # A share of the smaller number: the order of the sides makes no difference.
    room = max(min(abs(base), abs(other)), least)
    return abs(other - base) <= tolerance * room
