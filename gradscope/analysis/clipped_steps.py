"""What a step takes clipped, and what unclipped."""

from collections.abc import Iterable
from dataclasses import dataclass

from gradscope.analysis.clips import Clip, Clips
from gradscope.analysis.optimizer_steps import RunEvent
from gradscope.analysis.recording_index import RecordingIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedStep:
    """A step before which some of its optimizer's gradients were clipped."""

    event: RunEvent
    clips: tuple[Clip, ...]
    """Those since the optimizer's last step that found new gradients of its parameters."""
    inside: tuple[int, ...]
    """The parameters with a gradient that one of them was given."""
    outside: tuple[int, ...]
    """Those with a gradient that none was given."""


def clipped_steps(indexed: RecordingIndex) -> tuple[ClippedStep, ...]:
    """Return every step with a clip before it, where the parameters of all clips are known."""
    clips = indexed.shared(Clips)
    before: dict[int, list[Clip]] = {}
    for clip in clips.all:
        for step in clip.steps:
            before.setdefault(step.place, []).append(clip)
    events = clips.windows.events
    found = (_clipped_step(clips, events[place], calls) for place, calls in before.items())
    return tuple(step for step in found if step is not None)


def _clipped_step(clips: Clips, event: RunEvent, calls: Iterable[Clip]) -> ClippedStep | None:
    cutting = [clip for clip in calls if not clip.only_measures and clip.event.count("fresh")]
    optimizers = clips.windows.optimizers
    held = () if event.optimizer is None else optimizers[event.optimizer].parameters
    taken = clips.norms.with_gradient(event.step).intersection(held)
    if any(clip.parameters is None for clip in cutting):
        return None
    inside = _union(cutting) & taken
    if not inside:
        return None
    return ClippedStep(
        event=event,
        clips=tuple(cutting),
        inside=tuple(sorted(inside)),
        outside=tuple(sorted(taken - inside)),
    )


def _union(clips: Iterable[Clip]) -> frozenset[int]:
    return frozenset().union(*(clip.parameters or () for clip in clips))
