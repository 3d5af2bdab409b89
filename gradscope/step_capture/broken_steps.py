"""Records what breaks in steps of a script: gradients, losses, and backwards that raise."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.step_captures import Start
from gradscope.step_capture.failed_step import broken_start
from gradscope.step_capture.late_captures import LastStart, LateBackward, LateCaptures, LineKey
from gradscope.step_capture.probing import unscaled
from gradscope.step_capture.records import CaptureRecords, FoundCaptures, Made
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.window import Window


class BrokenSteps:
    """Looks for the cause of trouble that no capture in full explains.

    Args:
        training: State of the training.
        records: Makes recordings of captures.
        found: Takes these recordings.
        schedule: Number of the running step.
    """

    def __init__(
        self,
        training: TrainingState,
        records: CaptureRecords,
        found: FoundCaptures,
        schedule: Schedule,
    ) -> None:
        self._training, self._records = training, records
        self._found, self._schedule = found, schedule
        self._late = LateCaptures(training)
        self.last_start: LastStart | None = None
        self.has_broken = False
        """Whether a capture of this step shows non-finite gradients."""
        self._failed: StepCapture | None = None
        """Capture of a backward that raised: its exception may end the script."""

    def next_step(self) -> None:
        """Start a step."""
        self.has_broken, self.last_start = False, None

    def remember(self, capture: StepCapture, key: LineKey | None) -> None:
        """Store the lines of a captured backward, for a later one that breaks."""
        self._late.remember(capture, key, self._schedule.number)

    def gradients_broke(self, broken: Iterable[Tensor], finite: Iterable[Tensor]) -> None:
        """Record non-finite gradients that no capture explains."""
        last = self.last_start
        if self.has_broken or not self._late.may_search(self._schedule.number):
            return
        # A non-finite loss breaks every gradient: no operation of the backward is to blame.
        if last is None or last.is_broken:
            return
        with DisableTorchFunction():
            suspected = self._late.suspect(last.key, broken, finite)
        if suspected is not None:
            self._add(last.order, Made(self._records.made_of_suspicion(suspected, last)))

    def before_backward(self, start: Start, key: LineKey, *, readable: bool) -> None:
        """Watch a backward that is not captured in full, if there is trouble."""
        if self._late.is_trouble(start, key, self._schedule.number, readable=readable):
            self._late.begin_watched(start, key, readable=readable)

    def after_backward(self, order: int) -> None:
        """Record a backward whose forward was not observed, if it broke something."""
        if self.last_start is not None:
            self.last_start.order = order
        late = self._late.take()
        if late is None:
            return
        with DisableTorchFunction(), torch.no_grad():
            measured = late.measured()
            if late.is_worth_recording(measured):
                recording = self._records.made_late(late, measured)
                self._add(order, Made(unscaled(recording, late.scale)))
                self.has_broken = True
            elif late.is_suspicion:
                self._late.mark_harmless()
        late.release()

    def failed_backward(self, capture: StepCapture | None) -> None:
        """Record that a backward raised an exception; `capture` is that of the backward."""
        if capture is not None:
            self._failed = capture
        late = self._late.take()
        if late is not None:
            late.stop_watching()
            if late.found.of_loss is not None:
                self._note_loss(late)
            # Kept, because its exception may still end the script, and the diagnosis needs the
            # graph.
            self._failed = late.capture

    def forget_failed(self) -> None:
        """Release the capture of a backward that raised: the script goes on."""
        failed, self._failed = self._failed, None
        if failed is not None:
            failed.release_graph()

    def drop(self) -> None:
        """Release the capture of a running backward."""
        late = self._late.take()
        if late is not None:
            late.release()

    def see_failure(self, error: Exception, window: Window | None, last: Window | None) -> None:
        """Record autograd's exception that ended the script.

        Args:
            error: The exception.
            window: The running step, if it is captured.
            last: The captured step before it, if there is one.
        """
        capture, self._failed = self._failed, None
        recording = self._records.made_of_failure(error, capture, window, last)
        events = self._training.event_log.events
        # The failed backward may already be the last event of the step.
        is_told = bool(events) and events[-1].kind == "backward-error"
        self._found.add(len(events) - is_told, Made(recording))

    def see_broken_loss(self, error: BaseException, window: Window | None) -> None:
        """Capture the loss for which the script ended itself, if there is one."""
        with DisableTorchFunction(), torch.no_grad():
            start = broken_start(error.__traceback__)
            if start is None:
                return
            watched = window.capture if window is not None and window.is_here else None
            late = self._late.begin(start, None, readable=False, watched=watched)
            if late is not None:
                self._note_loss(late)
                late.release()

    def _note_loss(self, late: LateBackward) -> None:
        """Record where a forward broke whose backward did not finish."""
        order = len(self._training.event_log.events)
        self._add(order, Made(self._records.made_late(late, None)))

    def _add(self, order: int, made: Made) -> None:
        self._found.add(order, made)
        self._late.searched(self._schedule.number)
