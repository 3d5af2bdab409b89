"""What a clip does step by step, of a training run or of a target's batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gradscope.recording.evidence.clip_trial import ClipMethod, ClipPass, ClipTrial
from gradscope.recording.evidence.optimizer import OptimizerFamily, OptimizerRecord
from gradscope.rules.case import Case
from gradscope.rules.clipping.arithmetic import coefficient, scaled_cosine, total_norm
from gradscope.rules.clipping.clips import Clip, Clips
from gradscope.rules.clipping.outcomes import norm_of, outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPoint:
    """A step's gradients before and after the clip."""

    step: int
    norm: float
    """Before."""
    coefficient: float
    """Norm afterwards over norm before: what is left of the step; at most 1."""
    cosine: float | None
    """Between the two; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSeries:
    """What a line that clips does, or would do."""

    method: ClipMethod
    limit: float | None
    """The last one; None where it only measures."""
    norm_type: float
    words: str
    """The call, as `clip_grad_norm_(max_norm=1)`."""
    site: int | None
    points: tuple[ClipPoint, ...]
    calls: tuple[Clip, ...] = ()
    """Those of a run, as many a step as there are."""
    family: OptimizerFamily = "other"
    """Of the optimizer that uses what is left; `adaptive` where there is none."""
    optimizer: int | None = None
    """Its place among those of a run."""

    @property
    def finite(self) -> tuple[ClipPoint, ...]:
        """The points whose norm is finite."""
        return tuple(point for point in self.points if math.isfinite(point.norm))

    @property
    def cut(self) -> tuple[ClipPoint, ...]:
        """Those of them that were cut."""
        return tuple(point for point in self.finite if point.coefficient < 1)


def clip_series(case: Case) -> tuple[ClipSeries, ...]:
    """Return the lines that clip in a run, or the methods that were asked for of a target."""
    return tuple(_of_run(case) if case.is_run else _of_trial(case))


def trial_of(case: Case) -> ClipTrial | None:
    """Return how a target's gradients were measured; None where they were not."""
    return next(iter(case.recording.evidence_of(ClipTrial)), None)


def call_words(method: ClipMethod, limit: float, norm_type: float) -> str:
    """Return how a method is written."""
    kind = "" if norm_type == 2 else f", norm_type={norm_type:g}"
    match method:
        case "norm":
            return f"clip_grad_norm_(max_norm={limit:g}{kind})"
        case "per-tensor":
            return f"clip_grad_norm_(max_norm={limit:g}{kind}) of each parameter"
        case "value":
            return f"clip_grad_value_(clip_value={limit:g})"
        case "adaptive":
            return f"adaptive clipping to {limit:g} of the weights"


def _of_trial(case: Case) -> Iterator[ClipSeries]:
    trial = trial_of(case)
    if trial is None:
        return
    passes = case.recording.evidence_of(ClipPass)
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
            words=call_words(method, limit, trial.norm_type),
            site=None,
            points=tuple(
                _trial_point(place, one, trial, method) for place, one in enumerate(passes)
            ),
            family=family_of_target(case),
        )


def _trial_point(place: int, one: ClipPass, trial: ClipTrial, method: ClipMethod) -> ClipPoint:
    found = outcome(method, one, trial)
    return ClipPoint(
        step=place, norm=norm_of(one, trial), coefficient=found.coefficient, cosine=found.cosine
    )


def family_of_target(case: Case) -> OptimizerFamily:
    """Return the family of the optimizer that makes a target's steps; Adam's where it has none."""
    records = case.recording.evidence_of(OptimizerRecord)
    return next((record.family for record in records if record.is_targets), "adaptive")


def _of_run(case: Case) -> Iterator[ClipSeries]:
    clips = case.shared(Clips)
    found: dict[tuple[int | None, str], list[Clip]] = {}
    for clip in clips.all:
        if clip.event.count("fresh"):  # else there was nothing that it could cut
            found.setdefault((clip.event.site, clip.event.kind), []).append(clip)
    for calls in found.values():
        yield _line(clips, calls)


def _line(clips: Clips, calls: Sequence[Clip]) -> ClipSeries:
    last = calls[-1]
    by_step: dict[int, list[Clip]] = {}
    for clip in calls:
        by_step.setdefault(clip.event.step, []).append(clip)
    is_apart = any(_are_apart(ones) for ones in by_step.values())
    method: ClipMethod = (
        "value" if last.event.kind == "clip-value" else "per-tensor" if is_apart else "norm"
    )
    point: Callable[[Clip], ClipPoint] = _value_point if method == "value" else _norm_point
    owner = last.step.optimizer if last.step is not None else None
    return ClipSeries(
        method=method,
        limit=None if last.only_measures else last.limit,
        norm_type=last.event.number("norm_type") or 2.0,
        words=last.words,
        site=last.event.site,
        points=tuple(_joint_point(ones) for ones in by_step.values())
        if is_apart
        else tuple(point(clip) for clip in calls),
        calls=tuple(calls),
        family="sgd" if owner is None else clips.windows.optimizers[owner].family,
        optimizer=owner,
    )


def _are_apart(calls: Sequence[Clip]) -> bool:
    """Return whether calls of one step clip different parameters."""
    if len(calls) < 2 or any(clip.parameters is None for clip in calls):
        return False
    held = [clip.parameters or frozenset() for clip in calls]
    return sum(map(len, held)) == len(frozenset().union(*held))


def _factor(clip: Clip) -> float:
    if clip.limit is None or clip.norm is None or clip.only_measures:
        return 1.0
    return coefficient(clip.limit, clip.norm)


def _norm_point(clip: Clip) -> ClipPoint:
    norm = math.nan if clip.norm is None else clip.norm
    factor = _factor(clip)
    is_known = math.isfinite(norm) and factor > 0
    return ClipPoint(
        step=clip.event.step, norm=norm, coefficient=factor, cosine=1.0 if is_known else None
    )


def _joint_point(calls: Sequence[Clip]) -> ClipPoint:
    """Return the point of a step whose parameters are clipped one by one, or in groups."""
    norms = [math.nan if clip.norm is None else clip.norm for clip in calls]
    factors = [_factor(clip) for clip in calls]
    before = total_norm(norms)
    after = total_norm(n * f for n, f in zip(norms, factors, strict=True))
    return ClipPoint(
        step=calls[0].event.step,
        norm=before,
        coefficient=min(after / before, 1.0) if before else 1.0,
        cosine=scaled_cosine(norms, factors),
    )


def _value_point(clip: Clip) -> ClipPoint:
    before, after = clip.event.number("norm"), clip.event.number("norm_after")
    if before is None or after is None:  # as in recordings that do not know of them
        return ClipPoint(step=clip.event.step, norm=math.nan, coefficient=math.nan, cosine=None)
    return ClipPoint(
        step=clip.event.step,
        norm=before,
        coefficient=min(after / before, 1.0) if before else 1.0,
        cosine=clip.event.number("cosine"),
    )
