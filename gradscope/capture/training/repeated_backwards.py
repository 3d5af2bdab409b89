"""Runs the backward passes that repeat others, of which nothing is recorded unless they raise."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from gradscope.capture.compiler import is_traced
from gradscope.capture.observed_calls import argument
from gradscope.capture.source.lines import sequence_number
from gradscope.capture.step.graph import free_the_dead
from gradscope.capture.training.event_log import Number
from gradscope.capture.training.guard import Function
from gradscope.capture.training.optimizers import learning_rate
from gradscope.capture.training.pacing.budget import REPEATED_EVENT
from gradscope.capture.training.pacing.sentinels import loss_of
from gradscope.capture.training.state import TrainingState

Failed = Callable[[str, FrameType, BaseException], None]
"""Records the kind of a backward, the frame of its caller, and the exception that it raised."""


class RepeatedBackwards:
    """Compares each call of autograd's engine with the one that it is expected to repeat.

    After the roots, the engine gets grad_tensors, keep_graph, create_graph, inputs,
    allow_unreachable and accumulate_grad. `backward` accumulates, `grad` does not.

    Args:
        training: State of the training.
        scaled: By sequence number of a scaled loss: the scale.
        failed: Records a backward that raised.
    """

    def __init__(self, training: TrainingState, scaled: dict[int, Number], failed: Failed) -> None:
        self._training, self._scaled, self._failed = training, scaled, failed
        self._patterns = training.pace.patterns

    def begins(
        self, outputs: object, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> bool:
        """Return whether a backward is what the step is expected to do, from a finite loss.

        Args:
            outputs: Tensors to start from.
            args: The engine's further arguments.
            kwargs: Its keyword arguments.
            frame: Frame of its caller.
        """
        patterns = self._patterns
        is_backward = argument(args, kwargs, 5, "accumulate_grad")
        if len(args) <= 2:
            detail = 3 if is_backward else 1
        else:
            detail = (2 if is_backward and args[1] else 0) + (1 if args[2] else 0)
        here = patterns.position
        if here is not None and here.by_hand is not None:
            self._training.end_step_by_hand()
            here = patterns.position
        found = patterns.repeats("backward" if is_backward else "grad", detail, frame)
        if found is None:
            self._training.record_in_full()
            return False
        if not is_backward:
            return True
        found.number = patterns.last_number = sequence_number()
        if not found.has_loss:
            return True
        loss = loss_of(outputs)
        if loss is None:  # it is not finite, or not readable any more
            patterns.position, self._training.pace.measures = here, True
            self._training.record_in_full()
            return False
        patterns.losses.append(loss)
        if self._scaled:
            self._training.pace.unscale_loss(lambda: last_scale(self._scaled))
        return True

    def run(
        self,
        original: Function,
        outputs: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Run a backward that repeats another."""
        training = self._training
        guard = training.guard
        training.steps_in_repeated_backward = 0
        # Cheaper than `enter_change`, which needs the lock of the guard.
        guard.repeating = self._patterns.thread
        try:
            result = original(outputs, *args, **kwargs)
        except BaseException as error:
            guard.run(self._see_failure, _kind(args, kwargs), sys._getframe(2), error)
            raise
        finally:
            made, training.steps_in_repeated_backward = training.steps_in_repeated_backward, None
            guard.repeating = None
        if training.ranks.is_on:
            note_for_ranks(training)
        # After the backward: only then all gradients of the step are there.
        if made:
            self._end_step_of_hooks()
        return result

    def is_again(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> bool:
        """Return whether a call of `autograd.grad` continues the series recorded last."""
        if argument(args, kwargs, 5, "accumulate_grad"):
            return False
        creates = argument(args, kwargs, 2, "create_graph")
        return self._training.pace.patterns.is_grad_again(int(bool(creates)), frame)

    def run_again(
        self,
        original: Function,
        outputs: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Run one more call of such a series."""
        free_the_dead()
        guard = self._training.guard
        guard.enter_change()
        try:
            return original(outputs, *args, **kwargs)
        except BaseException as error:
            guard.run(self._see_failure, _kind(args, kwargs), sys._getframe(2), error)
            raise
        finally:
            guard.leave_change()
            self._training.pace.budget.spend(REPEATED_EVENT)

    def _end_step_of_hooks(self) -> None:
        """Record the optimizer steps made by hooks of a backward that repeats another."""
        training = self._training
        end = training.pace.patterns.end_by()
        index = None if end is None else end.events[-1].optimizer
        if end is None or index is None:
            training.record_in_full()
        else:
            optimizer = training.optimizers.known[index].optimizer()
            training.step_repeated(end, index, optimizer and learning_rate(optimizer))

    def _see_failure(self, kind: str, frame: FrameType, error: BaseException) -> None:
        # A script may catch the exception and go on: the call is recorded as one that failed.
        self._training.pace.patterns.forget_last()
        self._training.record_in_full()
        self._failed(kind, frame, error)


def note_for_ranks(training: TrainingState) -> None:
    """Take note of the end of a backward, in a distributed job."""
    if training.ranks.is_on and not is_traced():
        training.guard.run(training.ranks.backward_ended)


def last_scale(scaled: dict[int, Number]) -> Number:
    """Return the last of some scales, 1 if there is none."""
    return next(reversed(scaled.values()), 1.0)


def _kind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    accumulates = argument(args, kwargs, 5, "accumulate_grad")
    return "backward" if accumulates else "grad"
