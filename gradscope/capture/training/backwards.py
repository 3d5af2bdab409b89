"""Records every backward of a script: where it started, and the gradients it left."""

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, _current_graph_task_id
from torch.autograd.graph import GradientEdge, Node, saved_tensors_hooks

from gradscope.capture.compiler import is_in_cuda_graph, is_traced
from gradscope.capture.source.lines import Line, created, sequence_number
from gradscope.capture.step.graph import free_the_dead
from gradscope.capture.training.event_log import Number, known, number, unread
from gradscope.capture.training.graph_facts import contains, extent, scaling
from gradscope.capture.training.guard import Function
from gradscope.capture.training.history.history import History, ReusedOperations
from gradscope.capture.training.locations import Location, subject_of
from gradscope.capture.training.models.model_records import Forwards
from gradscope.capture.training.repeated_backwards import (
    RepeatedBackwards,
    last_scale,
    note_for_ranks,
)
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.step_captures import Start, StepCaptures
from gradscope.capture.training.steps.steps import Steps
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    BackwardErrorEvent,
    BackwardEvent,
    GradErrorEvent,
    GradEvent,
    named,
)

_WALKED_FIRST, _WALKED_EVERY = 5, 20
"""Graphs are walked completely in this many windows at first, and later in every Nth."""

_NONE = -1
"""Number of the backward that runs the caller, such as a reentrant checkpoint or a hook, if none
does."""


class Backwards:
    """Observes autograd's engine, which runs every backward."""

    def __init__(self, training: TrainingState, steps: Steps) -> None:
        self._training, self._steps = training, steps
        self._roots: set[int] = set()
        """Roots of this window's backwards that kept their graph."""
        self._history = History(training.event_log, training.locations)
        self._reused = ReusedOperations()
        self._last_step: int | None = None
        """Sequence number at the previous step."""
        self._passes: dict[Line | None, int] = {}
        """By line: sequence number at its previous backward."""
        self.windows = 0
        self.scaled: dict[int, Number] = {}
        """By sequence number of a scaled loss: the scale."""
        self.are_saved_readable = True
        """False if hooks may transform the saved tensors of a graph."""
        self._was_readable = True
        """The same for the backward that is starting."""
        self._is_own = False
        """Whether the starting backward is gradscope's own, not the script's."""
        self._repeated = RepeatedBackwards(training, self.scaled, self._failed_unobserved)

    def wrap(self, original: Function) -> Function:
        """Return the engine's function, wrapped."""
        guard, patterns = self._training.guard, self._training.pace.patterns
        repeated, ranks = self._repeated, self._training.ranks

        def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            # A backward inside a backward, as of a reentrant checkpoint, is part of the outer one.
            if self._is_own or not guard.active or _current_graph_task_id() != _NONE:
                return original(t_outputs, *args, **kwargs)
            if ranks.is_on and not is_traced():
                guard.run(ranks.backward_begins, t_outputs, sys._getframe(1))
            if patterns.position is not None and repeated.begins(
                t_outputs, args, kwargs, sys._getframe(1)
            ):
                return repeated.run(original, t_outputs, args, kwargs)
            if is_traced():
                self._training.gradient_state.may_be_replayed |= is_in_cuda_graph()
                return original(t_outputs, *args, **kwargs)
            frame = sys._getframe(1)
            if repeated.is_again(args, kwargs, frame):
                return repeated.run_again(original, t_outputs, args, kwargs)
            options = _options(*args, **kwargs)
            return self._run_recorded(
                partial(original, t_outputs, *args, **kwargs),
                guard.run(self._before, t_outputs, options, frame),
            )

        return run_backward

    def _run_recorded(self, run: Callable[[], Any], note: "_Note | None") -> Any:  # noqa: ANN401
        """Run a backward that is recorded in full."""
        guard = self._training.guard
        try:
            result = run()
        except BaseException as error:
            guard.leave_change()
            if note is not None:
                guard.run(self._failed, note, error)
            raise
        guard.leave_change()
        note_for_ranks(self._training)
        if note is not None:
            guard.run(self._after, note)
        return result

    def _failed_unobserved(self, kind: str, frame: FrameType, error: BaseException) -> None:
        """Record the failure of a backward of which nothing was recorded when it started."""
        location = self._training.locations.of(frame)
        self._failed(_Note(kind, location, {}, subject_of(location.call())), error)

    def catch_up(self) -> None:
        """Record the backward passes of steps that were only compared."""
        patterns = self._training.pace.patterns
        for event, sequence in patterns.numbers():
            line = event.location.user or event.location.inner
            self._passes[line] = max(sequence, self._passes.get(line, 0))
        self._last_step = patterns.last_number
        self._roots.clear()

    def wrap_saving(self, original: Function) -> Function:
        """Return `saved_tensors_hooks.__enter__`, wrapped.

        Tensors saved under such hooks are not read: under a checkpoint, that would run the forward.
        """

        def __enter__(hooks: saved_tensors_hooks) -> None:  # noqa: N807
            if not is_traced():
                self.are_saved_readable = False
            original(hooks)

        return __enter__

    def next_window(self) -> None:
        """Start a new window after an optimizer step."""
        self.windows += 1
        self._roots.clear()
        self.scaled.clear()
        self._last_step = sequence_number()

    def _before(
        self,
        outputs: Sequence[Tensor | GradientEdge],
        options: "_Options",
        frame: FrameType,
    ) -> "_Note":
        self._training.guard.enter_change()
        # The loss of the last step is usually gone by now, and a new graph is about to be walked.
        free_the_dead()
        training = self._training
        location = training.locations.of(frame)
        if not options.accumulates:
            numbers = named(GradEvent, inputs=float(options.inputs), create=float(options.create))
            return _Note("grad", location, numbers, "")
        training.sync_before_backward(frame)
        self._steps.backward_begins(frame)
        # A loss may be a tensor subclass, and reading its value must not add nodes to the graph.
        with DisableTorchFunction(), torch.no_grad():
            facts = self._facts(outputs, keeps=options.retain or options.create)
            facts |= self._extent(outputs, location, frame)
        facts |= _forward_facts(training.take_forwards())
        facts |= named(BackwardEvent, retain=float(options.retain), create=float(options.create))
        note = _Note("backward", location, facts, subject_of(location.call()))
        # With `create_graph` the backward builds a graph, which the hooks of a capture would join.
        if training.captures is not None and not options.create:
            self._prepare_capture(training.captures, outputs, note)
        return note

    def _prepare_capture(
        self, captures: StepCaptures, outputs: Sequence[Tensor | GradientEdge], note: "_Note"
    ) -> None:
        """Prepare a capture of the backward, if one is due."""
        root, numbers = outputs[0], note.numbers
        if len(outputs) > 1:
            broken = next(filter(_is_broken, outputs), None)
            if broken is None:
                roots = [one for one in outputs if isinstance(one, Tensor) and one.grad_fn]
                captures.before_several(roots, note.location)
                return
            root, numbers = broken, known(BackwardEvent, loss=unread(broken))
        # A loss that requires grad by itself has no graph, which a capture shows.
        if isinstance(root, Tensor) and root.requires_grad:
            self._is_own = True
            try:
                scale = last_scale(self.scaled) if note.numbers.get("scaled") else None
                start = Start(root, note.location, note.subject, scale, numbers.get("loss"))
                captures.before_backward(start, readable=self._was_readable)
            finally:
                self._is_own = False

    def _after(self, note: "_Note") -> None:
        training = self._training
        if note.kind == "backward":
            arrival = training.gradient_state.arrived()
            for entry in arrival.reached:
                entry.is_scaled = bool(note.numbers.get("scaled"))
            self._compare(note.location.inner, len(arrival.reached))
            note.numbers |= named(
                BackwardEvent,
                reached=float(len(arrival.reached)),
                stale=float(arrival.stale),
                added=float(arrival.added),
            )
            training.came_while_stepping(arrival.reached)
            if training.by_hand is not None:
                training.by_hand.measure()
        order = len(training.event_log.events)
        training.event_log.note(note.kind, note.location, note.numbers, subject=note.subject)
        if training.captures is not None:
            training.captures.after_backward(order)
        self._end_steps()

    def _compare(self, line: Line | None, reached: int) -> None:
        """Request a capture if a backward reaches another number of parameters than before."""
        training = self._training
        if (
            self._steps.gradient_changes.reaches_others(line, reached)
            and training.captures is not None
        ):
            training.captures.trouble()

    def _end_steps(self) -> None:
        self._steps.backward_ended()

    def _failed(self, note: "_Note", error: BaseException) -> None:
        if self._training.captures is not None:
            self._training.captures.failed_backward()
        self._end_steps()
        if not isinstance(error, Exception):
            return
        message = str(error)
        kind = BackwardErrorEvent if note.kind == "backward" else GradErrorEvent
        note.numbers |= named(
            kind,
            freed=float("second time" in message),
            in_place=float("modified by an inplace operation" in message),
        )
        self._training.event_log.note(
            f"{note.kind}-error", note.location, note.numbers, subject=note.subject
        )

    def _facts(self, outputs: Sequence[Tensor | GradientEdge], *, keeps: bool) -> dict[str, Number]:
        facts: dict[str, Number] = {}
        first = outputs[0] if len(outputs) else None
        if not isinstance(first, Tensor):
            return facts
        node = first.grad_fn
        if node is None:
            return known(BackwardEvent, loss=unread(first))
        facts |= self._root(node, keeps=keeps)
        found = scaling(node, self.scaled, readable=self.are_saved_readable)
        # Hooks seen since the last backward belong to this graph: the next one starts anew.
        self._was_readable, self.are_saved_readable = self.are_saved_readable, True
        facts |= named(BackwardEvent, divided=found.divided, scaled=float(found.is_scaled))
        if found.is_scaled:
            facts |= named(BackwardEvent, scale=unread(last_scale(self.scaled)))
        if found.multiplied != 1:
            facts |= named(BackwardEvent, multiplied=found.multiplied)
        reduction = None if found.is_mean is None else float(found.is_mean)
        facts |= known(BackwardEvent, reduction=reduction, tokens=unread(found.tokens))
        loss = number(first)
        if loss is not None:
            value = loss / last_scale(self.scaled) if found.is_scaled else loss
            facts |= named(BackwardEvent, loss=unread(value))
        return facts

    def _root(self, node: Node, *, keeps: bool) -> dict[str, Number]:
        sequence = created(node)
        if sequence is None:
            return {}
        roots = self._roots
        again = bool(roots) and contains(node, roots, min(roots))
        # Only a graph that was kept can be used again.
        if keeps:
            roots.add(sequence)
        return named(BackwardEvent, root=float(sequence), again=float(again))

    def _extent(
        self, outputs: Sequence[Tensor | GradientEdge], location: Location, frame: FrameType
    ) -> dict[str, Number]:
        """Return how far back a graph reaches, measured now and then."""
        first = outputs[0] if len(outputs) else None
        node = first.grad_fn if isinstance(first, Tensor) else None
        if node is not None and self._training.by_hand is not None:
            self._training.by_hand.find_loose(node, frame)
        line = location.user or location.inner
        before, self._passes[line] = self._passes.get(line), sequence_number()
        step, models = self._training.pace.steps, self._training.models
        is_kept_due = not models.in_threads and self._history.kept.is_due(step)
        is_due = self.windows < _WALKED_FIRST or self.windows % _WALKED_EVERY == 0
        if node is None or not (is_due or self._history.is_waiting or is_kept_due):
            return {}
        # A node belongs to an earlier step if it is older than both a step and this line's last
        # backward.
        moments = [one for one in (before, self._last_step) if one is not None]
        found = extent(node, min(moments) if len(moments) > 1 else None)
        facts = named(BackwardEvent, nodes=float(found.nodes))
        # Each thread has a sequence counter of its own, so numbers of different threads do not
        # compare.
        if not models.in_threads:
            facts |= named(BackwardEvent, older=float(bool(found.crossed)))
            if self._reused.are_outdated(line, node, found.crossed):
                facts |= named(BackwardEvent, outdated=1.0)
            self._history.search(line, frame, found.crossed, models.modules, step)
            if is_kept_due:
                self._history.kept.remember(self._training.gradient_state.entries)
        return facts


@dataclass(slots=True)
class _Note:
    """State of a backward before it runs."""

    kind: str
    location: Location
    numbers: dict[str, Number]
    subject: str


@dataclass(frozen=True, slots=True)
class _Options:
    """Arguments of a call of the engine."""

    retain: bool
    create: bool
    inputs: int
    accumulates: bool


def _options(
    grad_outputs: object,
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[object] | None = None,
    allow_unreachable: bool = False,
    accumulate_grad: bool = False,
) -> _Options:
    return _Options(bool(retain_graph), bool(create_graph), len(inputs or ()), accumulate_grad)


def _forward_facts(forwards: Forwards) -> dict[str, Number]:
    """Return the rows of the batch, or that there was a forward that was not observed."""
    if forwards.rows is None and forwards.are_unobserved:
        return named(BackwardEvent, forward=1.0)
    return known(BackwardEvent, rows=forwards.rows)


def _is_broken(output: Tensor | GradientEdge) -> bool:
    """Return whether one of several losses is a non-finite number in main memory."""
    is_number = isinstance(output, Tensor) and output.numel() == 1 and output.is_cpu
    loss = number(output) if is_number else None
    return isinstance(loss, float) and not math.isfinite(loss)
