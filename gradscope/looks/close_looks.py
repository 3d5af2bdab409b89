"""Looks closely at backward passes of a script, and makes recordings of them."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.assemble import Assembler
from gradscope.capture.definitions import Definitions, watch_definitions
from gradscope.capture.errors import backward_call, is_autograds
from gradscope.capture.garbage import no_garbage_collection
from gradscope.capture.lines import NUMBERED
from gradscope.capture.naming import NamedModel, name_model
from gradscope.capture.session import BackwardWatch, StepCapture
from gradscope.capture.training.backwards import subject_of
from gradscope.capture.training.close_looks import MakeLooks
from gradscope.capture.training.journal import Number
from gradscope.capture.training.places import Place
from gradscope.capture.training.scene import Scene as Training
from gradscope.errors import GradscopeError
from gradscope.looks.examination import examine_look
from gradscope.looks.failed_look import failed_look
from gradscope.looks.half_precision import HalfPrecision
from gradscope.looks.mode import LookMode
from gradscope.looks.schedule import FIRST, Schedule
from gradscope.looks.script_models import Script, script_of
from gradscope.looks.unscaling import unscaled
from gradscope.looks.window import Window
from gradscope.probes.scene import Scene
from gradscope.recording.meta import Header
from gradscope.recording.records import Look, Recording, TargetRecord
from gradscope.target.loader import Batches
from gradscope.target.target import Outcome, Target

_MOST_NODES = 50_000
"""Of a graph: a larger one would take too long to look at."""

_MOST_NODES_OF_ALL = 400_000
"""Of all looks together; afterwards only first steps and trouble are looked at."""


@dataclass(slots=True)
class _Current:
    """A backward that is being looked at."""

    window: Window
    script: Script
    named: NamedModel
    capture: StepCapture
    watch: BackwardWatch
    half: HalfPrecision
    root: Tensor
    subject: str
    scale: float


class ScriptLooks:
    """Looks closely at the steps of a training that a schedule names.

    Args:
        training: What is known of the script.
        header: Of the run's recording.
        schedule: When to look.
    """

    def __init__(self, training: Training, header: Header, schedule: Schedule) -> None:
        self._training, self._header, self._schedule = training, header, schedule
        self._mode = LookMode(self._fail)
        self._definitions = Definitions()
        self._stack = ExitStack()
        self._window: Window | None = None
        self._last: Window | None = None
        self._current: _Current | None = None
        self._failed: StepCapture | None = None
        """Of a backward that has raised an exception: it may be what ends the script."""
        self._found: list[tuple[int, Recording]] = []
        self._nodes = 0
        self._is_over = not NUMBERED
        self.reason: str | None = None if NUMBERED else "this torch does not number its nodes"
        """Why nothing is looked at any more, None while something may be."""

    def start(self) -> None:
        """Begin: the first step is looked at."""
        self._definitions = self._stack.enter_context(watch_definitions())
        self._open_if_due()

    def stop(self) -> None:
        """End, and leave nothing behind."""
        self._is_over = True
        self._close()
        self._last = None
        self._mode.remove()
        self._stack.close()

    def give_up(self, reason: str) -> None:
        """Look at nothing more."""
        if not self._is_over:
            self.reason, self._is_over = reason, True
            self._drop()
            self._close()
            self._mode.remove()

    def _fail(self, error: Exception) -> None:
        self.give_up(f"{type(error).__name__}: {error}")

    def optimizer_made(self, index: int) -> None:
        """Take in an optimizer, by its place among those that are known."""
        self._schedule.made(index)

    def step_ended(self, index: int, parameters: list[Tensor], place: Place) -> None:
        """Take in that an optimizer has made a step."""
        if self._window is not None:
            self._window.note_step(parameters, place.inner)
        self._schedule.stepped(index)
        self._close()
        self._open_if_due()

    def step_skipped(self) -> None:
        """Take in that a gradient scaler has left a step out."""
        if self._window is not None and self._schedule.skipped():
            self._close()
            self._open_if_due()

    def trouble(self) -> None:
        """Take in that something is to be seen: look at the next steps."""
        self._schedule.request()

    @property
    def has_found(self) -> bool:
        """Whether there is a look that nobody has taken."""
        return bool(self._found)

    def see_end(self, error: BaseException) -> None:
        """Take in the exception that has ended the script, with its traceback."""
        if not isinstance(error, Exception) or isinstance(error, torch.OutOfMemoryError):
            return
        if not is_autograds(error):
            return
        self._training.take_in()
        named = name_model(script_of(self._training), None)
        capture, self._failed = self._failed, None
        windows = [window for window in (self._window, self._last) if window is not None]
        if capture is None:
            forward = windows[0].capture if self._window is not None else StepCapture([])
            capture = forward.for_backward(named.parameters)
        place = self._training.places.of(backward_call(error))
        subject = subject_of(place.call())
        with DisableTorchFunction():
            recording = failed_look(
                error,
                capture,
                named,
                self._assembler(named),
                [window.capture.sites for window in windows[1:]],
                passed=frozenset[int]().union(*(window.passed for window in windows)),
                target=self._described(subject),
            )
        capture.let_go_of_graph()
        events = self._training.journal.events
        is_told = bool(events) and events[-1].kind == "backward-error"
        self._found.append((len(events) - is_told, recording))

    def take(self, step: int) -> tuple[Look, ...]:
        """Return the looks since the last call, as those of a step."""
        found, self._found = self._found, []
        return tuple(
            Look(step=step, order=order, recording=recording) for order, recording in found
        )

    def _open_if_due(self) -> None:
        if self._is_over or not self._schedule.is_due():
            self._mode.remove()
            self._last = None
            return
        self._window = Window(self._mode, script_of(self._training), self._last)
        self._window.open()

    def _forget_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            failed.let_go_of_graph()

    def _close(self) -> None:
        self._forget_failed()
        window, self._window = self._window, None
        if window is not None:
            window.close()
            self._last = window

    @no_garbage_collection()
    def before_backward(
        self, root: Tensor, place: Place, subject: str, scale: Number | None
    ) -> None:
        """Prepare to see the backward that is about to run, where it is to be looked at."""
        self._forget_failed()
        window, line = self._window, place.inner
        key = None if line is None else (id(line.code), line.number)
        if window is None or self._is_over or not window.is_here or key in window.looked_at:
            return
        window.looked_at.add(key)
        self._training.take_in()
        script = script_of(self._training)
        try:
            named = name_model(script, None)
        except GradscopeError:
            return  # a lazy parameter has no shape yet
        capture = window.capture.for_backward(named.parameters)
        with DisableTorchFunction():
            capture.trace(root)
            if self._last is not None:
                capture.reach_back(self._last.capture)
            nodes = len(capture.graph.nodes)
            is_early = self._schedule.number < FIRST
            if nodes > _MOST_NODES or (self._nodes > _MOST_NODES_OF_ALL and not is_early):
                capture.let_go_of_graph()
                return
            self._nodes += nodes
            half = HalfPrecision(window.autocasts)
            half.run(root, capture, is_scaled=scale is not None, is_first=is_early)
            watch = capture.watch_backward(root, alone=True)
        factor = 1.0 if scale is None else float(scale)
        self._current = _Current(window, script, named, capture, watch, half, root, subject, factor)

    def failed_backward(self) -> None:
        """Take in that it raised an exception, by which the script may end."""
        current, self._current = self._current, None
        if current is not None:
            current.watch.remove()
            self._failed = current.capture

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.watch.remove()
            current.capture.let_go_of_graph()

    @no_garbage_collection()
    def after_backward(self, order: int) -> None:
        """Take in what it left; its event has a place among those of the step."""
        current, self._current = self._current, None
        if current is None:
            return
        current.watch.remove()
        current.window.passed.update(current.capture.nodes_by_number())
        with DisableTorchFunction(), torch.no_grad():
            recording = self._recording(current)
        current.capture.let_go_of_graph()
        self._found.append((order, unscaled(recording, current.scale)))

    def _recording(self, current: _Current) -> Recording:
        loss = _number(current.root, current.scale)
        assembler = self._assembler(current.named)
        scene = Scene(
            target=_target(self._header, current.script),
            named=current.named,
            assembler=assembler,
            definitions=self._definitions,
            capture=current.capture,
            measured=current.watch.measurements(),
            loss=loss,
            terms=0,
            opaque=False,
            reruns=False,
            random_states=None,
            of_run=True,
        )
        examine_look(scene, current.window.values, current.root, current.half)
        assembler.add_step("step", current.capture, scene.measured, loss=loss)
        return assembler.finish(self._described(current.subject))

    def _assembler(self, named: NamedModel) -> Assembler:
        header = self._header
        return Assembler(
            named,
            version=header.version,
            command=header.command,
            environment=header.environment,
            definitions=self._definitions,
        )

    def _described(self, subject: str) -> TargetRecord:
        return replace(
            self._header.target,
            model=self._training.models.described,
            batch=self._training.batch,
            loss=subject,
        )


class _NotRunAgain:
    """Stands for the forward of a script."""

    def __call__(self) -> Outcome:
        raise GradscopeError("a script's forward is not run again")

    def at(self, batch: object, seed: int | None) -> Self:
        return self


def _target(header: Header, script: Script) -> Target:
    return Target(
        name=header.target.name,
        model=script,
        batch=(),
        batches=Batches(()),
        forward=_NotRunAgain(),
        optimizer=None,
        seed=None,
    )


def _number(loss: Tensor, scale: float) -> float | None:
    return float(loss) / scale if loss.numel() == 1 else None


def script_looks(schedule: Schedule) -> MakeLooks:
    """Return what looks at a training by a schedule."""
    return lambda training, header: ScriptLooks(training, header, schedule)
