"""Records the steps of optimizers, with the gradients that each used."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from gradscope.capture.compiler import is_traced, untraced
from gradscope.capture.reading import (
    why_unreadable,
)
from gradscope.capture.training.event_log import known, unread
from gradscope.capture.training.gradient_state import SPENT, UNSPENT, Entry
from gradscope.capture.training.guard import postponed_signals
from gradscope.capture.training.optimizers import Known, describe, learning_rate
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.step_captures import StepCaptures
from gradscope.capture.training.steps.between_steps import BetweenSteps
from gradscope.capture.training.steps.measurements import (
    GradientStorage,
    Measured,
    rounded,
    samples_of,
)
from gradscope.capture.training.steps.open_steps import (
    OpenStep,
    copies,
    gradient_of,
    is_left,
    joined,
    measure,
    measure_updates,
    own_scale,
    parts_of,
)
from gradscope.capture.training.steps.repetitions import GradientChanges, RepeatedStep, Repetitions
from gradscope.capture.training.steps.writer import Finished, StepWriter
from gradscope.phrasing import counted
from gradscope.recording.events import StepEvent, named

_UPDATES_FIRST, _UPDATES_EVERY = 3, 10
"""Weights and updates are measured in this many measured steps of an optimizer at first, and later
in every Nth."""


class _OfThread(threading.local):
    """The steps that a thread runs, outermost first."""

    def __init__(self) -> None:
        self.open: list[OpenStep] = []


class Steps:
    """Observes the steps of every optimizer.

    Args:
        training: State of the training.
        writer: Receives each finished step.
        gradient_storage: Which gradients are stored.
        ended: Called after each step that was written.
    """

    def __init__(
        self,
        training: TrainingState,
        writer: StepWriter,
        *,
        gradient_storage: GradientStorage,
        ended: Callable[[], None],
    ) -> None:
        self._training, self._writer, self._ended = training, writer, ended
        self._gradient_storage = gradient_storage
        self._own = _OfThread()
        self._within: list[OpenStep] | None = None
        """Steps made by hooks within the running backward; None if none runs."""
        self._handles: list[RemovableHandle] = []
        self.between = BetweenSteps(training)
        self.gradient_changes = GradientChanges()
        self._made: dict[int, int] = {}
        """By optimizer: number of its steps that were recorded in full."""
        self._measured: dict[int, int] = {}
        """By optimizer: number of its steps with measured gradients."""
        self.repetitions = Repetitions(training)
        self.stepped: set[int] = set()
        """Optimizers (by `id`) that have stepped since the last reset."""

    @property
    def has_stepped(self) -> bool:
        """Whether any optimizer has stepped."""
        return bool(self._made)

    def start(self) -> None:
        """Start observing steps."""
        self._handles = [
            # `Optimizer.__init__` puts a wrapper around `step` that calls the global hooks. They
            # observe every optimizer, also those made before recording started.
            register_optimizer_step_pre_hook(self._enter),
            register_optimizer_step_post_hook(self._leave),
        ]

    def stop(self) -> None:
        """Stop observing steps."""
        while self._handles:
            self._handles.pop().remove()

    @untraced
    def _enter(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        guard = self._training.guard
        if not guard.active:
            return
        # The arguments of the hook include the optimizer itself, so a closure is the second one.
        has_closure = (len(args) > 1 and callable(args[1])) or (
            bool(kwargs) and callable(kwargs.get("closure"))
        )
        frame = sys._getframe(1)
        if not guard.quickly(self._repeats, optimizer, has_closure, frame) and not is_traced():
            guard.run(self._before, optimizer, has_closure, frame)

    def _repeats(self, optimizer: Optimizer, has_closure: bool, frame: FrameType) -> bool:
        """Return whether a step that begins repeats another."""
        self.between.before_step(optimizer, frame)
        if self._training.ranks.is_on:
            self._training.ranks.enter_step(optimizer, frame)
        return self.repetitions.begins(optimizer, has_closure, frame)

    @untraced
    def _leave(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        training, repeated = self._training, self.repetitions.running
        guard, is_in_backward = training.guard, training.steps_in_repeated_backward is not None
        if not guard.active:
            return
        if repeated is None or is_in_backward:
            if repeated is None and is_traced():
                return
            guard.quickly(self._after_any, optimizer)
            if not is_in_backward:
                guard.run(self._finish, optimizer)
        elif repeated.known.optimizer() is not optimizer:  # it is called by the one that counts
            guard.quickly(self._after_any, optimizer)
        else:
            guard.quickly(self._end_repeated, optimizer, repeated)
            if training.after_step is not None:
                training.after_step()

    def _after_any(self, optimizer: Optimizer) -> None:
        training = self._training
        training.shared_weights.steps += 1
        self.between.weights.after_step(optimizer)
        if training.ranks.is_on:
            training.ranks.leave_step(optimizer)
        self.stepped.add(id(optimizer))

    def _end_repeated(self, optimizer: Optimizer, repeated: RepeatedStep) -> None:
        self._after_any(optimizer)
        self.repetitions.running = None
        self._training.take_repeated(repeated.end, repeated.index, learning_rate(optimizer))

    def _before(self, optimizer: Optimizer, has_closure: bool, frame: FrameType) -> None:
        training = self._training
        location = training.locations.of(frame)
        one = training.optimizers.of(optimizer)
        if self.is_within_backward:  # it still writes the other gradients
            training.gradient_state.came_early(one.entries)
        else:
            training.sync(frame)
        # Hooks do run here: the steps are not compiled.
        training.gradient_state.steps_are_unseen = False
        training.optimizers.name_by_step(one, location)
        self._forget_left(frame)
        if has_closure:
            training.pace.patterns.spoil()
        self._own.open.append(
            OpenStep(one, location, has_closure, {}, None, [], frame=id(frame), code=frame.f_code)
        )
        training.stepping.append(set())
        if not has_closure:
            self._record_gradients(
                self._own.open[-1], {id(e) for e in one.entries if e.state == UNSPENT}
            )
            if training.captures is not None:
                training.captures.step_begins()
        if self._is_due(one) and training.pace.measures:
            self._own.open[-1].samples = samples_of(one.entries)
            self._own.open[-1].before = copies(one)

    def _forget_left(self, frame: FrameType) -> None:
        """Discard the steps ended by exceptions, but not their finished nested steps."""
        open_steps = self._own.open
        while open_steps and is_left(open_steps[-1], frame):
            left = open_steps.pop()
            self._training.stepping.pop()
            if left.parts:
                self._end(left.parts)

    def _record_gradients(self, step: OpenStep, fresh: set[int]) -> None:
        """Record the gradients that the optimizer uses."""
        entries = step.known.entries
        gradients = [(e, gradient_of(e)) for e in entries]
        present = [e for e, gradient in gradients if gradient is not None]
        of_fresh = [e for e in present if id(e) in fresh]
        step.numbers = named(
            StepEvent,
            parameters=float(len(entries)),
            with_gradient=float(len(present)),
            fresh=float(len(of_fresh)),
            stale=float(sum(e.state == SPENT and id(e) not in fresh for e in present)),
            none=float(len(entries) - len(present)),
            backwards=float(max((e.passes for e in of_fresh), default=0)),
            clipped=float(sum(e.clipped for e in present)),
            written=float(sum(e.is_written for e in of_fresh)),
            manual=0.0,
        )
        if self._gradient_storage.is_due(self._made.get(step.known.index, 0)):
            step.kept = self._gradient_storage.kept(entries, own_scale(step.known))
        if self._training.pace.measures:
            step.measured = measure(
                step.known,
                scale=own_scale(step.known),
                with_weights=self._is_due(step.known) or not step.known.weights,
            )
            self._skip_unread(present, step.measured)
            found = [one.gradient for one in step.measured if one.gradient is not None]
            if found or not present:  # otherwise none of them can be read
                step.numbers |= named(StepEvent, norm=math.hypot(*found))
            broken = sum(not math.isfinite(norm) for norm in found)
            step.numbers |= named(StepEvent, nonfinite=float(broken))
            if self._training.pace.repeats_steps:
                self._training.pace.sentinels.watch_gradient(step.known.index, step.measured)
            if broken and self._training.captures is not None:
                self._tell_broken(self._training.captures, step.measured)

    @staticmethod
    def _tell_broken(captures: StepCaptures, measured: list[Measured]) -> None:
        if any(one.entry.is_written for one in measured):
            return  # the script itself may have broken them after its backward
        known = [
            (p, math.isfinite(one.gradient))
            for one in measured
            if one.gradient is not None and (p := one.entry.parameter()) is not None
        ]
        captures.gradients_broke(
            [parameter for parameter, is_finite in known if not is_finite],
            [parameter for parameter, is_finite in known if is_finite],
        )

    def _skip_unread(self, present: list[Entry], measured: list[Measured]) -> None:
        """Record why gradients have no norm."""
        read = {id(one.entry) for one in measured}
        left = [g for e in present if id(e) not in read and (g := gradient_of(e)) is not None]
        for reason, count in Counter(map(why_unreadable, left)).items():
            if reason is not None:
                self._writer.skip(f"the gradients of {counted(count, 'parameter')}", reason)

    def _finish(self, optimizer: Optimizer) -> None:
        step = self._after(optimizer)
        if step is None:
            return
        if self._own.open:
            self._add_part(self._own.open[-1], step)
        elif self._within is not None and self.is_within_backward:
            self._within += parts_of(step)
        else:
            self._end(parts_of(step), [step.known, *step.others])

    def _add_part(self, outer: OpenStep, step: OpenStep) -> None:
        if any(one.known is step.known for one in outer.parts):
            # It trains others: the steps they made until now are a separate step.
            made, outer.parts = outer.parts, []
            self._end(made)
        outer.parts += parts_of(step)
        outer.others += [step.known, *step.others]

    def backward_begins(self, frame: FrameType) -> None:
        """Prepare for a backward whose hooks may step optimizers."""
        self._forget_left(frame)
        self._within = []

    def backward_ended(self) -> None:
        """Write the steps made by its hooks as one step of the script."""
        parts, self._within = self._within, None
        if parts:
            self._end(parts)

    @property
    def is_within_backward(self) -> bool:
        """Whether a hook of the running backward calls this."""
        # Hooks of this backward run in a thread with its number; -1 is none.
        return self._within is not None and torch._C._current_graph_task_id() != -1

    def _end(self, parts: list[OpenStep], others: Sequence[Known] = ()) -> None:
        """Write the steps of several optimizers as one step of the script.

        Args:
            parts: Steps that change trained parameters.
            others: Optimizers that called these steps, or trained copies of the same parameters.
        """
        optimizers = [one.known for one in parts]
        leader = self._training.optimizers.joined(optimizers, others)
        step = joined(parts, leader)
        # A handler that raises in between would leave a step written and not counted.
        with postponed_signals(self._training.guard.later):
            self._write(step)
            self._report_captures(step, {one.index for one in (*optimizers, *others)})
            self._ended()

    def _after(self, optimizer: Optimizer) -> OpenStep | None:
        """Return the finished step, None if an exception ended it before."""
        training = self._training
        if not self._own.open or self._own.open[-1].known.optimizer() is not optimizer:
            self._own.open.clear()  # an exception ended an earlier step
            training.stepping.clear()
            return None
        step, came = self._own.open.pop(), training.stepping.pop()
        if step.has_closure:
            self._record_gradients(
                step, came or {id(e) for e in step.known.entries if e.state == UNSPENT}
            )
            step.numbers |= known(StepEvent, evaluations=unread(_evaluations(optimizer)))
        training.gradient_state.spend(step.known.entries)
        training.spend_among(came)
        if self.is_within_backward:
            training.gradient_state.settle(step.known.entries)
        self._made[step.known.index] = self._made.get(step.known.index, 0) + 1
        if step.measured is not None:
            self._measured[step.known.index] = self._measured.get(step.known.index, 0) + 1
            measure_updates(step.before, step.measured)
        step.rounded, step.before = list(rounded(step.samples)), []
        step.description = describe(optimizer)
        step.numbers |= known(StepEvent, lr=unread(learning_rate(optimizer)))
        return step

    def _report_captures(self, step: OpenStep, concerned: set[int]) -> None:
        captures = self._training.captures
        is_changed = self.gradient_changes.has_new(step.known.index, step.numbers, step.measured)
        if is_changed:
            self._training.pace.force()
        if captures is None:
            return
        if is_changed:
            captures.trouble()
        for index in concerned - {step.known.index}:
            captures.steps_with(index)
        entries = step.known.all_entries
        parameters = (p for entry in entries if (p := entry.parameter()) is not None)
        captures.step_ended(step.known.index, parameters, step.location)

    def _write(self, step: OpenStep) -> None:
        self._training.event_log.note(
            "step", step.location, step.numbers, optimizer=step.known.index, subject=step.known.name
        )
        self._writer.write(
            Finished(
                step.description,
                step.measured or [],
                step.known.index,
                tuple(step.rounded),
                step.kept,
            )
        )

    def _is_due(self, one: Known) -> bool:
        """Return whether weights and updates are measured in an optimizer's next step."""
        measured = self._measured.get(one.index, 0)
        return measured < _UPDATES_FIRST or measured % _UPDATES_EVERY == 0


def _evaluations(optimizer: Optimizer) -> int | None:
    """Return how often an optimizer has called closures, None if it does not count."""
    # L-BFGS has one state for all parameters.
    state = next(iter(optimizer.state.values()), None)
    count = state.get("func_evals") if isinstance(state, dict) else None
    return count if isinstance(count, int) else None
