"""What the steps of one optimizer have been like so far."""

from collections.abc import Iterable

from gradscope.analysis.curves import CurveKind
from gradscope.analysis.live_series import Series
from gradscope.recording.records import EventRecord, StepRecord

KINDS = ("step", "clip-norm", "clip-value", "scaler-step", "scaler-update")
"""Of the events that are looked at."""


class Track:
    """The steps of an optimizer, or of several that one line made."""

    def __init__(self) -> None:
        self.name = self.title = ""
        """The variable that holds it, and what it is: `AdamW(lr=0.001)`."""
        self.steps = 0
        self.curves: dict[CurveKind, Series] = {
            "loss": Series("mean"),
            "norm": Series("largest"),
            "rate": Series("largest"),
        }
        self.before_clip = Series("largest")
        """The norms that clipping found."""
        self.clips = 0
        """The steps whose gradients went through a clip."""
        self.clipped = 0
        """Those of them whose norm was over the limit."""
        self.limit: float | None = None
        """Of the last clip: the largest norm, or the largest element."""
        self.is_by_value = False
        """Whether that clip was of elements."""
        self.scale: float | None = None
        """By which a gradient scaler multiplies the loss."""
        self.skipped = 0
        """The steps that a gradient scaler skipped."""

    def add(self, step: StepRecord, events: Iterable[EventRecord]) -> None:
        """Take a step with what led to it."""
        self.steps += 1
        self.title = step.optimizer or self.title
        self.curves["loss"].add(step.index, step.loss)
        clips = []
        for event in events:
            numbers = dict(event.numbers)
            if event.kind == "step":
                self.curves["norm"].add(step.index, numbers.get("norm"))
                self.curves["rate"].add(step.index, numbers.get("lr"))
            elif event.kind in ("clip-norm", "clip-value"):
                clips.append((event.kind, numbers))
            elif event.kind == "scaler-step":
                self.skipped += numbers.get("skipped") == 1
            else:
                self.scale = numbers.get("scale_after", self.scale)
        if clips:
            self._add_clips(step.index, clips)

    def _add_clips(self, step: int, clips: list[tuple[str, dict[str, float]]]) -> None:
        kind, numbers = max(clips, key=lambda clip: _excess(clip[1]))
        self.clips += 1
        self.clipped += _excess(numbers) > 1
        self.is_by_value = kind == "clip-value"
        self.limit = numbers.get("clip_value" if self.is_by_value else "max_norm")
        self.before_clip.add(step, numbers.get("norm"))


def _excess(numbers: dict[str, float]) -> float:
    """Return how many times the limit a norm is that was clipped; 0 where that is not known."""
    norm, limit = numbers.get("norm"), numbers.get("max_norm")
    return norm / limit if norm is not None and limit else 0.0
