"""Observes a training between the start and the stop of its watch."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced, unfollow_package
from gradscope.capture.interpreter import tell
from gradscope.capture.ranks.sync_checks import SyncChecks
from gradscope.capture.ranks.watch import RankWatch
from gradscope.capture.tensor_references import allow_swaps
from gradscope.capture.training.backwards import Backwards
from gradscope.capture.training.clips import Clips
from gradscope.capture.training.given import GivenObjects, compiled_models
from gradscope.capture.training.gradient_calls import Scalers, Zeroing
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.capture.training.loop_calls import Compilations, Loaders, Schedulers
from gradscope.capture.training.pacing.budget import Budget
from gradscope.capture.training.pacing.pace import Pace
from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.state import MakeCaptures, TrainingState
from gradscope.capture.training.steps.by_hand import ByHand
from gradscope.capture.training.steps.measurements import GradientStorage
from gradscope.capture.training.steps.steps import Steps
from gradscope.capture.training.steps.writer import StepWriter
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.training import EndingKind, RunEnding
from gradscope.recording.meta import Header
from gradscope.recording.run_recorder import RunRecorder
from gradscope.switch import NO_TENSORS, OFF

_OVER: frozenset[EndingKind] = frozenset({"exited", "returned", "stopped"})
"""Endings after which no code of a script runs."""


class RunningWatch:
    """A recorder between its start and its stop."""

    def __init__(
        self,
        recorder: RunRecorder,
        every: int | None,
        budget: Budget,
        gradient_storage: GradientStorage,
        after_step: Callable[[], None] | None,
        *,
        keeps_batches: bool,
    ) -> None:
        self._guard = Guard(self._fail)
        self._guard.spend = budget.spend
        self._training = training = TrainingState(self._guard)
        self._writer = StepWriter(training, recorder)
        self._ranks = training.ranks = RankWatch(training)
        training.flush_ranks = self._writer.flush_ranks
        self._pace = training.pace = Pace(
            training.gradient_state,
            training.event_log,
            training.locations,
            budget,
            every=every,
            write=recorder.repeat,
        )
        self._pace.take_passed = self._take_passed
        training.batches.step = self._pace.running_step
        recorder.batches.identities = training.batches.of_step
        if keeps_batches:
            training.batches.are_stored = True
            recorder.batches.contents = training.batches.copies
        if recorder.thinner is not None:
            recorder.thinner.in_use = self._pace.in_use
        training.take_repeated, training.resumed = self._take_repeated, self._resumed
        training.after_step = after_step
        training.event_log.observer = None if budget.is_unlimited else self._pace.noted
        # Stored gradients come from the gradients themselves, which such steps do not read.
        self._may_repeat = gradient_storage.mode == "none"
        self._steps = Steps(
            training, self._writer, gradient_storage=gradient_storage, ended=self._ended
        )
        self._backwards = Backwards(training, self._steps)
        self._by_hand = training.by_hand = ByHand(
            training, self._writer, gradient_storage=gradient_storage, ended=self._ended_by_hand
        )
        self._patches = Patches()
        self._compilations = Compilations(self._patches, self._begin_compiling)

    @property
    def steps(self) -> int:
        """Number of steps recorded so far."""
        return self._pace.running_step()

    def check_ranks(self, every: int) -> None:
        """Let ranks compare digests of their replicas in every Nth step."""
        self._ranks.sync_checks = SyncChecks(self._training, self._ranks.log, every)

    def start(
        self, given: GivenObjects, make_captures: MakeCaptures | None, header: Header
    ) -> None:
        """Install everything, and record what existed before."""
        if make_captures is None:
            self._writer.skip("tensors and module calls", f"not wanted ({NO_TENSORS})")
        else:
            self._training.captures = make_captures(self._training, header)
            # Before all patches, so that it ends after them.
            self._guard.run(self._training.captures.start)
            self._pace.first_step(is_captured=self._training.captures.is_open)
        self._install()
        self._guard.run(self._see_given, given)

    def _install(self) -> None:
        unfollow_package()
        allow_swaps()
        patches = self._patches
        # `Tensor.backward`, `autograd.backward` and `autograd.grad` all end in this function. Hooks
        # would see a backward only from inside, after it has started, and not how it was called.
        patches.wrap(torch.autograd.graph, "_engine_run_backward", self._backwards.wrap)
        # `torch.autograd` has imported the function by name.
        patches.put(
            torch.autograd, "_engine_run_backward", torch.autograd.graph._engine_run_backward
        )
        # Also called by optimizers of other packages, which derive from this class.
        patches.wrap(Optimizer, "__init__", self._wrap_making)
        Zeroing(self._training, self._steps).install(patches)
        Clips(self._training).install(patches)
        Scalers(self._training, self._backwards, self._steps).install(patches)
        Schedulers(self._training).install(patches)
        Loaders(self._training).install(patches)
        self._training.shared_weights.install(patches)
        # Non-reentrant checkpoints, `save_on_cpu` and hooks of the script pack tensors this way.
        patches.wrap(saved_tensors_hooks, "__enter__", self._backwards.wrap_saving)
        # `Compilations` sees what is compiled; this one knows by which name.
        patches.wrap(torch, "compile", self._wrap_compile)
        self._training.models.eval_modes.install(patches)
        self._training.models.start()
        self._ranks.install(patches)
        # Last: its hook may end the recording, and torch iterates over the hooks meanwhile.
        self._steps.start()
        self._compilations.start()

    def see_end(self, error: BaseException) -> None:
        """Record the exception that ended the training."""
        if self._training.captures is not None:
            self._guard.run(self._training.captures.see_end, error)

    def stop(self, ending: RunEnding | None) -> None:
        """Restore everything and finish the recording."""
        self._training.record_in_full()
        self._guard.run(self._by_hand.finish)
        self._guard.run(self._steps.between.finish)
        if ending is not None and ending.kind in _OVER:
            self._patches.restore()  # what the functions call is no event of the training
            self._guard.run(self._check_functions)
        self._guard.run(lambda: self._finish(ending))
        self._guard.active = False
        self.remove()

    def _check_functions(self) -> None:
        if self._training.captures is not None:
            self._writer.note_functions(self._training.captures.check_functions())

    def _finish(self, ending: RunEnding | None) -> None:
        if unread := self._steps.between.weights.unread:
            self._writer.skip("weights that change between the steps of an optimizer", unread)
        self._writer.finish(ending, self._by_hand.left())

    def remove(self) -> None:
        """Restore torch."""
        self._steps.stop()
        self._ranks.stop()
        self._training.models.stop()
        self._patches.restore()
        if self._training.captures is not None:
            self._training.captures.stop()

    def continue_at(self, step: int) -> None:
        """Record that the training was resumed, behind a number of optimizer steps."""
        self._guard.run(self._writer.continue_at, step)

    def flush(self) -> None:
        """Write the steps that are held."""
        self._guard.run(self._pace.flush)

    def _ended(self, *, within_call: bool = False) -> None:
        self._backwards.next_window()
        self._compilations.listen()
        self._begin_step(within_call=within_call)
        if self._training.after_step is not None:
            self._guard.later(self._training.after_step)

    def _ended_by_hand(self) -> None:
        if self._training.captures is not None:
            self._training.captures.stepped_by_hand()
        # Such a step is detected by the call that follows it.
        self._ended(within_call=True)

    def _begin_step(self, *, within_call: bool = False) -> None:
        captures = self._training.captures
        is_captured = captures is not None and captures.is_open
        if self._pace.next_step(
            is_captured=is_captured, may_repeat=self._may_repeat, within_call=within_call
        ):
            self._training.models.pause_for_step()
        else:
            self._training.models.resume_for_step()
            self._guard.run(self._pace.catch_up, self._resumed)

    def _resumed(self) -> None:
        """Resume full recording."""
        self._training.models.resume()
        self._backwards.catch_up()

    def _take_repeated(self, end: Position, optimizer: int | None, rate: object) -> None:
        """Process the end of a step that repeated another."""
        if self._backwards.scaled:
            self._backwards.scaled.clear()
        if self._pace.goes_on(end, optimizer, rate):
            return
        self._pace.settle()
        self._pace.repeated(end, rate)
        self._take_passed([optimizer])
        captures = self._training.captures
        if captures is not None and optimizer is not None:
            captures.open_if_due()
        self._begin_step()
        self._pace.rest(math.inf if captures is None else captures.rests())

    def _take_passed(self, optimizers: Sequence[int | None]) -> None:
        """Process steps that repeated others, by the indices of their optimizers."""
        self._writer.steps += len(optimizers)
        if self._training.captures is not None:
            self._training.captures.steps_repeated(optimizers)

    def _wrap_making(self, original: Function) -> Function:
        def __init__(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
            original(optimizer, *args, **kwargs)
            if not is_traced():
                self._guard.run(self._see_made, optimizer, sys._getframe(1))

        return __init__

    def _see_made(self, optimizer: Optimizer, frame: FrameType) -> None:
        self._training.record_in_full()
        self._compilations.listen()
        self._training.optimizers.made(optimizer, frame)
        if self._training.captures is not None:
            self._training.captures.optimizer_made(self._training.optimizers.known[-1].index)

    def _wrap_compile(self, original: Function) -> Function:
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self._guard.run(self._see_compiled, args[0] if args else None, sys._getframe(1))
            return original(*args, **kwargs)

        return compile

    def _see_compiled(self, compiled: object, frame: FrameType) -> None:
        self._training.record_in_full()
        self._training.models.see_compiled(compiled, frame)
        # A compiled function may contain `optimizer.step()`, of which no hook tells.
        self._training.gradient_state.steps_are_unseen = not self._steps.has_stepped
        self._see_compiling()

    def _begin_compiling(self) -> None:
        self._guard.run(self._see_compiling)

    def _see_compiling(self) -> None:
        """Remove what compiled code would contain, or would be recompiled without."""
        self._training.models.stop()
        self._writer.skip("rows and modes of models", "torch.compile is used")
        if self._training.captures is not None:
            self._training.captures.give_up(
                "torch.compile is used, and compiled code cannot be captured"
            )

    def _see_given(self, given: GivenObjects) -> None:
        """Record what existed before."""
        if given.model is not None:
            self._training.models.add(given.model, given.model_name)
        if given.optimizer is not None:
            name = given.optimizer_name
            self._training.optimizers.add(given.optimizer, given.made_at, name)
        for compiled in compiled_models():
            self._see_compiled(compiled, sys._getframe())

    def _fail(self, error: Exception) -> None:
        self.remove()
        text = _text_of(error)
        with suppress(Exception):  # the script may have closed the file of the recording
            self._writer.abandon(text)
        tell(
            f"recording ended: {text}; the script continues"
            f" ({OFF} in the environment runs it without gradscope)"
        )


def _text_of(error: Exception) -> str:
    if isinstance(error, GradscopeError):
        return error.what
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a handler of the script's may have raised it
        return type(error).__name__
