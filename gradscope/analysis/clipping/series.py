"""The effect of a clip step by step, in a training run or on a target's batches."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from gradscope.analysis.clipping.arithmetic import coefficient, norm_of, outcome, product_cosine
from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.norms import norm_of_norms
from gradscope.analysis.recording_index import RecordingIndex
from gradscope.frozen import dataclass
from gradscope.phrasing import literal
from gradscope.recording.events import ClipNormEvent, ClipValueEvent
from gradscope.recording.evidence.training import (
    ClipMethod,
    ClipPass,
    ClipTrial,
    OptimizerFamily,
    OptimizerRecord,
)

_SAMPLE = 2_000
"""Number of points that stand for all steps of a long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPoint:
    """A step's gradients before and after the clip."""

    step: int
    norm: float
    """Norm before the clip."""
    coefficient: float
    """Norm after over norm before the clip, at most 1."""
    cosine: float | None
    """Cosine between the gradients before and after; None if unknown."""
    count: int = 1
    """Number of steps that it stands for in a long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSeries:
    """The actual or possible effect of a line that clips."""

    method: ClipMethod
    limit: float | None
    """Limit of the last call; None if the line only measures."""
    norm_type: float
    text: str
    """Text of the call, as `clip_grad_norm_(max_norm=1)`."""
    site: int | None
    points: tuple[ClipPoint, ...]
    """One point per measured call; one per step if several calls clip different parameters."""
    calls: tuple[Clip, ...] = ()
    """Clip calls of a run."""
    family: OptimizerFamily = "other"
    """Family of the optimizer that uses the clipped gradients."""
    optimizer: int | None = None
    """Index among the optimizers of a run."""

    @property
    def finite(self) -> tuple[ClipPoint, ...]:
        """The points whose norm is finite."""
        return tuple(point for point in self.points if math.isfinite(point.norm))

    @property
    def typical(self) -> tuple[ClipPoint, ...]:
        """Finite points in order, as often as they stand for steps: an even sample of many."""
        if all(point.count == 1 for point in self.finite):
            return self.finite
        known = self.finite
        ends = list(accumulate(point.count for point in known))
        sample = min(ends[-1], _SAMPLE)
        return tuple(known[bisect_right(ends, turn * ends[-1] // sample)] for turn in range(sample))

    @property
    def cut(self) -> tuple[ClipPoint, ...]:
        """Points with a finite norm that were cut."""
        return tuple(point for point in self.finite if point.coefficient < 1)


def clip_series(indexed: RecordingIndex) -> tuple[ClipSeries, ...]:
    """Return the lines that clip in a run, or the methods that were asked for of a target."""
    return tuple(_of_run(indexed) if indexed.is_run else _of_trial(indexed))


def trial_of(indexed: RecordingIndex) -> ClipTrial | None:
    """Return how a target's gradients were measured; None where they were not."""
    return next(iter(indexed.recording.evidence_of(ClipTrial)), None)


def call_text(method: ClipMethod, limit: float, norm_type: float) -> str:
    """Return how a method is written."""
    kind = "" if norm_type == 2 else f", norm_type={literal(norm_type)}"
    match method:
        case "norm":
            return f"clip_grad_norm_(max_norm={literal(limit)}{kind})"
        case "per-tensor":
            return f"clip_grad_norm_(max_norm={literal(limit)}{kind}) of each parameter"
        case "value":
            return f"clip_grad_value_(clip_value={literal(limit)})"
        case "adaptive":
            return f"adaptive clipping to {literal(limit)} of the weights"


def _of_trial(indexed: RecordingIndex) -> Iterator[ClipSeries]:
    trial = trial_of(indexed)
    if trial is None:
        return
    passes = indexed.recording.evidence_of(ClipPass)
    limits: dict[ClipMethod, float | None] = {
        "norm": trial.max_norm,
        "per-tensor": trial.max_norm,
        "value": trial.value,
        "adaptive": trial.adaptive_ratio,
    }
    for method in trial.asked:
        limit = limits[method]
        if limit is None:
            continue
        yield ClipSeries(
            method=method,
            limit=limit,
            norm_type=trial.norm_type,
            text=call_text(method, limit, trial.norm_type),
            site=None,
            points=tuple(
                _trial_point(position, one, trial, method) for position, one in enumerate(passes)
            ),
            family=family_of_target(indexed),
        )


def _trial_point(position: int, one: ClipPass, trial: ClipTrial, method: ClipMethod) -> ClipPoint:
    found = outcome(method, one, trial)
    return ClipPoint(
        step=position, norm=norm_of(one, trial), coefficient=found.coefficient, cosine=found.cosine
    )


def family_of_target(indexed: RecordingIndex) -> OptimizerFamily:
    """Return the family of the optimizer of a target's steps; Adam's without an optimizer."""
    records = indexed.recording.evidence_of(OptimizerRecord)
    return next((record.family for record in records if record.is_targets), "adaptive")


def _of_run(indexed: RecordingIndex) -> Iterator[ClipSeries]:
    clips = indexed.shared(Clips)
    found: dict[tuple[int | None, str, int | None], list[Clip]] = {}
    for clip in clips.all:
        if clip.event.fresh:  # else there was nothing that it could cut
            owner = None if clip.step is None else clip.step.optimizer
            found.setdefault((clip.event.site, clip.event.kind, owner), []).append(clip)
    for (_, _, owner), calls in found.items():
        yield _line(clips, calls, owner)


def _line(clips: Clips, calls: Sequence[Clip], owner: int | None) -> ClipSeries:
    last = calls[-1]
    by_step: dict[int, list[Clip]] = {}
    for clip in calls:
        by_step.setdefault(clip.event.step, []).append(clip)
    is_apart = any(_are_apart(ones) for ones in by_step.values())
    by_norm: ClipMethod = "per-tensor" if is_apart else "norm"
    return ClipSeries(
        method="value" if isinstance(last.event, ClipValueEvent) else by_norm,
        limit=None if last.only_measures else last.limit,
        norm_type=_norm_type(last),
        text=last.text,
        site=last.event.site,
        points=tuple(
            _point(ones)
            for ones in (by_step.values() if is_apart else ([clip] for clip in calls))
            if all(clip.norm_before is not None for clip in ones)
        ),
        calls=tuple(calls),
        family="other" if owner is None else clips.windows.optimizers[owner].family,
        optimizer=owner,
    )


def _are_apart(calls: Sequence[Clip]) -> bool:
    """Return whether calls of one step clip different parameters."""
    if len(calls) < 2 or any(clip.parameters is None for clip in calls):
        return False
    held = [clip.parameters or frozenset() for clip in calls]
    return sum(map(len, held)) == len(frozenset().union(*held))


def _norm_type(clip: Clip) -> float:
    event = clip.event
    recorded = event.norm_type if isinstance(event, ClipNormEvent) else None
    return 2.0 if recorded is None else recorded


def _point(calls: Sequence[Clip]) -> ClipPoint:
    """Return the point of calls that clip one part of the gradients each."""
    parts = [_part(clip) for clip in calls]
    kind = _norm_type(calls[0])
    before = norm_of_norms((part.before for part in parts), kind)
    after = norm_of_norms((part.after for part in parts), kind)
    product = math.fsum(part.product for part in parts) if math.isfinite(before) else math.nan
    is_whole = len(calls) == 1 and isinstance(calls[0].event, ClipNormEvent)
    # Other types of norm do not determine the change of direction.
    cosine = product_cosine(before, after, product) if kind == 2 else None
    # One factor for all gradients keeps their direction; the quotient would show rounding.
    if is_whole:
        cosine = 1.0 if math.isfinite(before) and after > 0 else None
    factor = parts[0].factor if is_whole else min(after / before, 1.0) if before else 1.0
    return ClipPoint(
        step=calls[0].event.step,
        norm=before,
        coefficient=factor,
        cosine=cosine,
        count=calls[0].count,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The effect of a call on its gradients."""

    before: float
    after: float
    product: float
    factor: float


def _part(clip: Clip) -> _Part:
    before = _or_nan(clip.norm_before)
    if isinstance(clip.event, ClipValueEvent):  # recordings may not know of the numbers
        after = _or_nan(clip.event.norm_after)
        # A zero gradient has no direction: its cosine is NaN, and NaN times zero is NaN.
        cosine = _or_nan(clip.event.cosine) if after else 0.0
        return _Part(before, after, cosine * before * after, after / before if before else 1.0)
    factor = 1.0
    if clip.limit is not None and not clip.only_measures:
        factor = coefficient(clip.limit, before)
    return _Part(before, factor * before, factor * before * before, factor)


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number
