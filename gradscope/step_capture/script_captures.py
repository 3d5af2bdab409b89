"""Captures backward passes of a script in detail, and makes recordings of them."""

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.compiler import compiles_backward
from gradscope.capture.errors import is_autograds, is_own_fault
from gradscope.capture.source.definitions import watch_definitions
from gradscope.capture.source.lines import NUMBERED
from gradscope.capture.step.stored_gradients import first_gradient
from gradscope.capture.training.locations import Location
from gradscope.capture.training.state import MakeCaptures, TrainingState
from gradscope.capture.training.step_captures import Start
from gradscope.errors import GradscopeError
from gradscope.garbage import no_garbage_collection
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.meta import Header
from gradscope.recording.records import CapturedStep
from gradscope.step_capture.broken_steps import BrokenSteps
from gradscope.step_capture.forward_watch import Constants
from gradscope.step_capture.function_inputs import FunctionInputs
from gradscope.step_capture.late_captures import LastStart, LineKey, line_key, starts_broken
from gradscope.step_capture.mode import CaptureMode
from gradscope.step_capture.own_part import alone
from gradscope.step_capture.probing import HalfPrecision, unscaled
from gradscope.step_capture.records import (
    CaptureRecords,
    CurrentCapture,
    FoundCaptures,
    is_broken,
)
from gradscope.step_capture.schedule import FIRST, GraphLimits, Schedule, Thoroughness
from gradscope.step_capture.script_models import ScriptNames
from gradscope.step_capture.window import Window
from gradscope.switch import NO_TENSORS


class ScriptCaptures:
    """Captures the steps of a training that a schedule selects.

    Args:
        training: State of the training.
        header: Header of the run's recording.
        schedule: Decides which steps are captured.
        checks_functions: Whether custom functions may run once the script is over.
    """

    def __init__(
        self,
        training: TrainingState,
        header: Header,
        schedule: Schedule,
        *,
        checks_functions: bool = False,
    ) -> None:
        self._training, self._schedule = training, schedule
        budget = training.pace.budget
        schedule.affords = None if budget.is_unlimited else budget.affords_capture
        self._thoroughness = Thoroughness(schedule)
        self._names = ScriptNames()
        self._constants: Constants = {}
        self._functions = FunctionInputs()
        self._checks_functions = checks_functions
        self._mode = CaptureMode(self.fail, self._functions)
        self._records = CaptureRecords(training, header)
        self._stack = ExitStack()
        self._window: Window | None = None
        self._last: Window | None = None
        self._current: CurrentCapture | None = None
        self._found = FoundCaptures()
        self._broken = BrokenSteps(training, self._records, self._found, schedule)
        self._graphs = GraphLimits()
        self._by_hand = 0
        """Number of manual steps."""
        self._is_over = not NUMBERED
        self.reason: str | None = None if NUMBERED else "this torch exposes no sequence numbers"
        """Why no more steps are captured, None while some may be."""

    def start(self) -> None:
        """Start: the first step is captured."""
        self._records.definitions = self._stack.enter_context(watch_definitions())
        self._training.models.records.definitions = self._records.definitions
        self._open_if_due()

    def stop(self) -> None:
        """Stop, and remove every hook."""
        self._is_over = True
        self._close()
        self._last = None
        self._mode.remove()
        self._stack.close()

    def give_up(self, reason: str) -> None:
        """Stop capturing steps."""
        if not self._is_over:
            self.reason, self._is_over = reason, True
            self._drop()
            self._close()
            self._mode.remove()

    def fail(self, error: Exception) -> None:
        """Stop capturing steps because of a fault of gradscope's own."""
        self.give_up(f"{type(error).__name__}: {error} ({NO_TENSORS} turns them off)")

    @alone
    def optimizer_made(self, index: int) -> None:
        """Add an optimizer, by its index."""
        self._schedule.made(index)

    @alone
    def steps_with(self, index: int) -> None:
        """Record that an optimizer's steps are part of another's."""
        self._schedule.steps_with(index)

    @alone
    def gradients_broke(self, broken: Iterable[Tensor], finite: Iterable[Tensor]) -> None:
        """Record non-finite gradients that no capture explains."""
        if not self._is_over:
            self._broken.gradients_broke(broken, finite)

    @alone
    def step_begins(self) -> None:
        """Stop observing while an optimizer runs: it adds nothing to a graph."""
        self._mode.remove()

    @alone
    def step_ended(self, index: int, parameters: Iterable[Tensor], location: Location) -> None:
        """Record that an optimizer has stepped."""
        if self._window is not None:
            stepped = list(parameters)
            self._window.note_step(stepped, location.inner)
            self._training.shared_weights.averaged(self._window.capture.averages.of(stepped))
            averages = self._window.capture.averages
            # An optimizer often holds a frozen average, too.
            trained = [one for one in stepped if one.grad is not None]
            self._training.wrong_averages.see(averages.averages(trained))
            bootstraps = self._window.capture.bootstraps.found.values()
            self._training.still_targets.see(bootstraps, trained)
            self._training.wrong_averages.see_computed(averages.computed(stepped))
            self._training.wrong_averages.see_trained(averages.of_trained(trained))
            self._training.shared_weights.kept(self._window.capture.kept_gradients.found)
            self._training.unvarying_results.stepped(self._window.capture.unvarying)
            self._training.unused_derivatives.stepped(
                self._window.capture.derivatives.graphed,
                self._window.passed if self._window.is_whole else frozenset(),
                is_next=self._last is not None,
            )
        is_full = self._window is not None and self._window.is_full
        self._thoroughness.stepped(index, in_full=is_full)
        self._schedule.stepped(index)
        self._broken.next_step()
        self._close()
        self._open_if_due()

    @alone
    def stepped_by_hand(self) -> None:
        """Record that the script itself changed its weights: the first such steps are captured."""
        self._by_hand += 1
        self._broken.next_step()
        # Without an optimizer, the schedule counts no steps.
        if self._by_hand == FIRST:
            self._close()
            self._mode.remove()

    @alone
    def steps_repeated(self, optimizers: Sequence[int | None]) -> None:
        """Record steps that repeated others."""
        self._broken.next_step()
        for index in optimizers:
            if index is not None:
                self._schedule.stepped(index)

    @alone
    def open_if_due(self) -> None:
        """Capture the next step if a capture is due."""
        if self._window is not None or self._schedule.is_due():
            self._close()
            self._open_if_due()

    def rests(self) -> float:
        """Return the number of next steps in which no capture is due, except by the budget."""
        if self._window is not None:
            return 0
        has_optimizer = self._by_hand < FIRST or self._schedule.number > 0
        return self._schedule.rests() if has_optimizer else math.inf

    @alone
    def step_skipped(self) -> None:
        """Record that a gradient scaler skipped a step."""
        # Until the scaler has found its scale, each skipped step would leave a window without a
        # step.
        if self._window is not None and self._schedule.skipped():
            self._close()
            self._open_if_due()

    def trouble(self) -> None:
        """Capture the next steps because of a problem."""
        self._schedule.request()

    def check_functions(self) -> list[CustomFunctionRecord]:
        """Stop capturing, and check the custom functions of a script that is over."""
        self._is_over = True
        self._close()
        self._mode.remove()
        return self._functions.check(self._training.event_log.sites.index)

    @property
    def is_open(self) -> bool:
        """Whether the running step is being captured."""
        return self._window is not None

    @property
    def has_found(self) -> bool:
        """Whether there is a captured step that was not taken."""
        return self._found.has_new

    @alone
    def see_end(self, error: BaseException) -> None:
        """Record the exception that ended the script, with its traceback."""
        # Neither has a cause in the graph, and a capture would need more of the missing memory.
        if isinstance(error, KeyboardInterrupt | torch.OutOfMemoryError):
            return
        if isinstance(error, Exception) and is_own_fault(error):
            self.fail(error)
        elif isinstance(error, Exception) and is_autograds(error):
            self._training.take_in()
            self._broken.see_failure(error, self._window, self._last)
        elif not self._is_over:
            self._broken.see_broken_loss(error, self._window)

    def take(self, step: int) -> tuple[CapturedStep, ...]:
        """Return the captured steps since the last call, as those of a step."""
        return self._found.take(step)

    def _open_if_due(self) -> None:
        if self._is_over or not self._schedule.is_due():
            self._mode.remove()
            self._last = None
            return
        if self._checks_functions:
            self._functions.learn()
        is_full = self._thoroughness.is_full()
        self._window = Window(
            self._mode, self._training, self._last, self._constants, is_full=is_full
        )
        self._window.open()

    def _close(self) -> None:
        self._broken.forget_failed()
        window, self._window = self._window, None
        if window is not None:
            window.close()
            # Kept for one more step, whose graph may reach back into this one.
            self._last = window

    @alone
    @no_garbage_collection()
    def before_backward(self, start: Start, *, readable: bool) -> None:
        """Prepare to capture the backward that is about to run, if it is due."""
        self._broken.forget_failed()
        if compiles_backward():
            self.give_up("compiled autograd is used, and compiled code cannot be captured")
        if self._is_over:
            return
        window, key = self._window, line_key(start.location)
        self._broken.last_start = LastStart(key, start.subject, is_broken=starts_broken(start))
        if window is not None and window.is_here:
            with DisableTorchFunction():
                window.capture.kept_gradients.before_backward(self._first_gradient())
        if window is not None and window.is_here and self._is_new(window, key, start):
            window.captured[key] += 1
            self._begin(window, key, start)
        else:
            if window is not None:
                window.is_whole = False
            self._broken.before_backward(start, key, readable=readable)

    def _first_gradient(self) -> Tensor | None:
        return first_gradient(one.parameter for one in self._training.gradient_state.entries)

    @alone
    def backward_repeated(self, location: Location, subject: str, order: int) -> None:
        """Record a backward of which nothing was recorded when it started."""
        self._broken.last_start = LastStart(
            line_key(location), subject, is_broken=False, order=order
        )

    @alone
    @no_garbage_collection()
    def before_several(self, roots: Iterable[Tensor], location: Location) -> None:
        """Store the lines of several losses with one backward."""
        window, key = self._window, line_key(location)
        if window is None or self._is_over or not window.is_here or window.captured[key]:
            return
        window.captured[key] += 1
        window.is_whole = False
        for root in roots:
            capture = window.capture.for_backward([])
            with DisableTorchFunction():
                capture.trace(root)
                self._broken.remember(capture, None)
                capture.release_graph()

    def _is_new(self, window: Window, key: LineKey, start: Start) -> bool:
        return window.captured[key] < self._schedule.captures_per_line or starts_broken(start)

    def _begin(self, window: Window, key: LineKey, start: Start) -> None:
        self._training.take_in()
        try:
            script, named = self._names.of(self._training)
        except GradscopeError:
            window.is_whole = False
            return  # a lazy parameter has no shape yet
        capture = window.capture.for_backward(named.parameters, named.shards)
        # The script's modes and tensor subclasses must not observe gradscope's calls.
        root, scale = start.root, 1.0 if start.scale is None else float(start.scale)
        with DisableTorchFunction():
            capture.trace(root)
            if self._last is not None:
                capture.reach_back(self._last.capture)
            is_early = self._schedule.number < FIRST
            if not self._graphs.take(len(capture.graph.nodes), is_early=is_early):
                window.is_whole = False
                capture.release_graph()
                if self._graphs.reason is not None:
                    self.give_up(self._graphs.reason)
                return
            self._broken.remember(capture, key)
            # Before the script's own backward, which frees the graph.
            half = HalfPrecision(window.autocasts)
            half.run(root, capture, is_scaled=start.scale is not None, is_first=is_early)
            watch = capture.watch_backward(root, alone=True, magnitudes=window.is_full)
        self._current = CurrentCapture(
            window, script, named, capture, watch, half, root, start.subject, key, scale
        )

    @alone
    def failed_backward(self) -> None:
        """Record that the backward raised an exception, which may end the script."""
        current, self._current = self._current, None
        if current is not None:
            current.watch.remove()
        self._broken.failed_backward(None if current is None else current.capture)

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.watch.remove()
            current.capture.release_graph()
        self._broken.drop()

    @alone
    @no_garbage_collection()
    def after_backward(self, order: int) -> None:
        """Record the gradients that it left; `order` is the index of its event in the step."""
        if self._window is not None and self._window.is_here:
            with DisableTorchFunction():
                self._window.capture.kept_gradients.after_backward(self._first_gradient())
        self._broken.after_backward(order)
        current, self._current = self._current, None
        if current is None:
            return
        current.watch.remove()
        current.window.passed.update(current.capture.graph.by_number())
        with DisableTorchFunction(), torch.no_grad():
            if not (current.window.is_full or self._records.knows(current.line)):
                self._thoroughness.ask()
            made = self._records.made(current, self._found.number)
            self._broken.has_broken |= is_broken(made.recording)
        current.capture.release_graph()
        # A gradient scaler multiplied the loss, so all recorded gradients are divided again.
        recording = unscaled(made.recording, current.scale)
        self._found.add(order, made._replace(recording=recording))


def script_captures_by(schedule: Schedule, *, checks_functions: bool = False) -> MakeCaptures:
    """Return the factory of captures by a schedule.

    Args:
        schedule: Decides which steps are captured.
        checks_functions: Whether custom functions may run once the script is over.
    """
    return lambda training, header: ScriptCaptures(
        training, header, schedule, checks_functions=checks_functions
    )
