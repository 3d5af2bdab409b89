"""The series of clips that rules judge, and the loss scale that each is under."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

from gradscope.analysis.clipping.clips import Clip
from gradscope.analysis.clipping.series import ClipSeries, clip_series
from gradscope.analysis.windows import Windows
from gradscope.recording.events import BackwardEvent, Event, ScalerUpdateEvent, ZeroEvent
from gradscope.recording.evidence.clipping import ClipTrial
from gradscope.rules.context import RuleContext


@dataclass(frozen=True)
class LossScale:
    """What the gradient scaler multiplies losses by."""

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
        """Return the scale when something happened; None where nothing tells it."""
        position = bisect_right(self._updates, event.position, key=lambda one: one.position)
        if position < len(self._updates):
            return self._updates[position].scale_before
        return self._updates[-1].scale_after if self._updates else None


def is_of_trial(context: RuleContext) -> bool:
    """Return whether clipping was measured of a target, with a method that was asked for."""
    return any(trial.asked for trial in context.recording.evidence_of(ClipTrial))


def judged_series(context: RuleContext) -> tuple[ClipSeries, ...]:
    """Return the lines that clip what a step then uses, with a limit above zero.

    Clips of gradients that are still scaled, that another backward adds to, or that nothing uses
    are left out: there it is the place of the clip that is wrong.
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
    """Return whether a step uses what the clip leaves, as it leaves it."""
    if clip.step is None or clip.event.scaled:
        return False
    return not any(isinstance(event, BackwardEvent | ZeroEvent) for event in clip.later)
