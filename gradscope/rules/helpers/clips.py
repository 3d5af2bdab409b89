"""The clips that rules judge: their series, their loss scale, and the norms before them."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

from gradscope.analysis.clipping.arithmetic import coefficient
from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.analysis.clipping.series import ClipSeries, clip_series
from gradscope.analysis.windows import Windows
from gradscope.recording.events import (
    BackwardEvent,
    ClipValueEvent,
    Event,
    ScalerUpdateEvent,
    StepEvent,
    ZeroEvent,
    only,
)
from gradscope.recording.evidence.training import ClipTrial, MisplacedWriteRecord, WriteWay
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext


@dataclass(frozen=True)
class LossScale:
    """The factor of losses by the gradient scaler."""

    context: RuleContext

    @cached_property
    def _updates(self) -> tuple[ScalerUpdateEvent, ...]:
        """The scaler's updates, in their order."""
        return tuple(
            event
            for event in self.context.shared(Windows).events
            if isinstance(event, ScalerUpdateEvent) and event.scale_before is not None
        )

    def at(self, event: Event) -> float | None:
        """Return the scale at the time of an event; None if unknown."""
        # The next update tells which scale the event had.
        position = bisect_right(self._updates, event.position, key=lambda one: one.position)
        if position < len(self._updates):
            return self._updates[position].scale_before
        return self._updates[-1].scale_after if self._updates else None


def step_of_another(context: RuleContext, clip: Clip) -> StepEvent | None:
    """Return the step of another optimizer that a call comes just before; None elsewhere.

    A backward has fed that step since the clipped gradients were used. If it has also reached the
    clipped ones, they are zeroed before any step could use them.
    """
    if clip.step_before is None or not clip.parameters:
        return None
    events = context.shared(Windows).events
    if clip.event.fresh and not _is_in_vain(clip, events):
        return None
    passes = events[clip.step_before.position : clip.event.position]
    if not any(isinstance(event, BackwardEvent) for event in passes):
        return None
    feeding = (BackwardEvent, StepEvent)
    after = (event for event in events[clip.event.position :] if isinstance(event, feeding))
    step = next(after, None)
    if not isinstance(step, StepEvent) or step.optimizer in (None, clip.step_before.optimizer):
        return None
    # A step with clipped gradients has a clip of its own.
    return step if step.fresh and not step.clipped else None


def _is_in_vain(clip: Clip, events: Sequence[Event]) -> bool:
    """Return whether the owner of clipped gradients zeroes them before its next step."""
    owner = None if clip.step_before is None else clip.step_before.optimizer
    # At the end of a run nothing uses them any more.
    return clip.step is None or any(
        isinstance(event, ZeroEvent) and event.optimizer == owner and event.unspent
        for event in events[clip.event.position : clip.step.position]
    )


def is_of_trial(context: RuleContext) -> bool:
    """Return whether clipping was measured of a target, with a method that was asked for."""
    return any(trial.asked for trial in context.recording.evidence_of(ClipTrial))


def judged_series(context: RuleContext) -> tuple[ClipSeries, ...]:
    """Return the lines that clip gradients which a step then uses, with a limit above zero.

    Clips of gradients that are still scaled, that another backward adds to, or that nothing uses
    are left out: there the clip stands on the wrong line.
    """
    found = []
    for series in clip_series(context):
        if series.limit is None or not series.limit > 0:
            continue
        if series.calls:
            wrong = {clip.event.step for clip in series.calls if not _is_used(clip)}
            points = tuple(point for point in series.points if point.step not in wrong)
            series = replace(series, points=points)
        found.append(series)
    return tuple(found)


def _is_used(clip: Clip) -> bool:
    """Return whether a step uses the clipped gradients unchanged."""
    if clip.step is None or clip.event.scaled:
        return False
    return not any(isinstance(event, BackwardEvent | ZeroEvent) for event in clip.later)


@dataclass(frozen=True)
class UnclippedNorms:
    """Gradient norms before the clips of a run, as far as the clips measured them.

    A clip by value is taken for one by the norm: of all its parameters together that is exact.
    """

    context: RuleContext

    def before(self, step: int, norms: Mapping[int, float]) -> dict[int, float]:
        """Return norms as they were before the clips of a step.

        Args:
            step: The step.
            norms: By parameter, as the step found them.
        """
        factors = self._factors.get(step, {})
        return {index: norm / factors.get(index, 1.0) for index, norm in norms.items()}

    @cached_property
    def _factors(self) -> Mapping[int, Mapping[int, float]]:
        """By step and parameter: what clips have multiplied a gradient by."""
        found: dict[int, dict[int, float]] = {}
        for clip in self.context.shared(Clips).all:
            factor = _factor(clip)
            if factor is None or clip.parameters is None:
                continue
            for step in clip.steps:
                factors = found.setdefault(step.step, {})
                for index in clip.parameters:
                    factors[index] = factors.get(index, 1.0) * factor
        return found


def _factor(clip: Clip) -> float | None:
    """Return the remaining part of a norm in the next step; None if all of it, or unknown."""
    before, limit = clip.norm_before, clip.limit
    if before is None or limit is None or not isfinite(before) or not clip.event.fresh:
        return None
    if any(isinstance(event, BackwardEvent | ZeroEvent) for event in clip.later):
        return None
    if isinstance(clip.event, ClipValueEvent):
        after = clip.event.norm_after
        factor = after / before if after is not None and before else 1.0
    else:
        # A limit of infinity is how scripts measure a norm.
        factor = 1.0 if clip.only_measures else coefficient(limit, before)
    return factor if 0 < factor < 1 else None


def writes_in_vain(context: RuleContext, way: WriteWay) -> Iterator[tuple[Site, Site, int]]:
    """Yield the lines that scale gradients by hand where no step uses it.

    Each with the line of the loop's backward, and the number of backward passes from there.
    """
    recording = context.recording
    counts = Counter(
        recording.sites[one.site]
        for one in only(BackwardEvent, context.shared(Windows).events)
        if one.site is not None
    )
    found = dict[Site, Site]()
    for captured in recording.captured_steps:
        sites = captured.recording.sites
        for one in captured.recording.evidence_of(MisplacedWriteRecord):
            if one.way == way:
                found.setdefault(sites[one.site], sites[one.backward])
    lines = {(one.file, one.line): (one, count) for one, count in counts.items()}
    for site, backward in found.items():
        # Another function of the file may not have run.
        made, count = lines.get((backward.file, backward.line), (backward, 0))
        if count > 1:
            yield site, made, count
