"""The loss of a step that is computed in parts."""

import math

from gradscope.analysis.windows import LoopWindow, windows
from gradscope.recording.events import BackwardEvent, only
from gradscope.recording.records import Recording


def summed_losses(recording: Recording) -> dict[int, float]:
    """Return by step of a run the sum of the losses that backward started from.

    That is what the step's gradients are the gradient of, in however many parts it was computed.
    Steps with a backward whose loss is not known are left out.
    """
    sums = {}
    for window in windows(recording):
        losses = _losses(window)
        if window.is_finished and not window.is_skipped and losses and None not in losses:
            sums[window.step.index] = math.fsum(loss for loss in losses if loss is not None)
    return sums


def _losses(window: LoopWindow) -> list[float | None]:
    return [event.loss for event in only(BackwardEvent, window.events)]
