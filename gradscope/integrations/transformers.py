"""The callback for transformers' Trainer, and for the trainers of TRL, which derive from it."""

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, Unpack

from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_callback import (
    CallbackHandler,
    TrainerControl,
    TrainerState,
)
from transformers.training_args import TrainingArguments

from gradscope.integrations.trainer_watch import CallbackArguments, TrainerWatch, callback_options
from gradscope.session.report import Report


class GradscopeCallback(TrainerCallback):
    """Records the gradients of a training, logs their norms, and reports findings at its end.

    ```
    trainer = Trainer(..., callbacks=[GradscopeCallback(save="run.gradscope")])
    ```

    Everything that the trainer reports to gets `grad_norm/global`, `grad_norm/LAYER` and
    `gradscope/findings` with each of its logs, and `trainer.state.log_history` too. Norms are those
    before clipping, without the scale of mixed precision. The training gives bit-identical results.
    """

    def __init__(self, **arguments: Unpack[CallbackArguments]) -> None:
        self._watch = TrainerWatch(callback_options(**arguments))
        self._others: Sequence[TrainerCallback] = ()
        self._is_logging = False

    @property
    def report(self) -> Report | None:
        """Report on the last training; None before its end."""
        return self._watch.report

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **given: Any,  # noqa: ANN401
    ) -> None:
        """Start recording."""
        frame = sys._getframe(1)
        # Trackers have logged before this callback is called: they are called once more.
        self._others = [one for one in _callbacks(frame) if one is not self and not _prints(one)]
        rank = args.process_index if args.world_size > 1 else None
        # The trainer has restored its checkpoint by now, and with it the step.
        optimizer, step = _plain(given.get("optimizer")), state.global_step
        self._watch.start(given["model"], optimizer, frame, rank=rank, is_resumed=step > 0)
        self._watch.continue_at(step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **given: Any,  # noqa: ANN401
    ) -> None:
        """Log the metrics, as often as the trainer logs."""
        if not self._is_logging and state.is_world_process_zero:
            self._log(self._watch.metrics(), args, state, control, given)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **given: Any,  # noqa: ANN401
    ) -> None:
        """Report the findings.

        Raises:
            UnhealthyGradientsError: There are findings at or above `fail_level`.
        """
        is_first = state.is_world_process_zero
        values = self._watch.finish(is_first_rank=is_first)
        if is_first:
            self._log(values, args, state, control, given)
        self._watch.check()

    def _log(
        self,
        values: dict[str, float],
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        given: dict[str, Any],
    ) -> None:
        """Send metrics to the trainer's trackers, with the step as the trainer counts it."""
        if not values:
            return
        # The trainer has added its own logs before it calls back: these would be missing.
        state.log_history.append({**values, "epoch": state.epoch, "step": state.global_step})
        self._is_logging = True
        try:
            for one in self._others:
                # A copy for each: a tracker may change the logs that it gets.
                one.on_log(args, state, control, **{**given, "logs": dict(values)})
        finally:
            self._is_logging = False


def _callbacks(frame: FrameType | None) -> Iterable[TrainerCallback]:
    """Return the callbacks of the trainer that calls this one: it does not pass them."""
    while frame is not None:
        handler = frame.f_locals.get("self")
        if isinstance(handler, CallbackHandler):
            return tuple(handler.callbacks)
        frame = frame.f_back
    return ()


def _prints(callback: TrainerCallback) -> bool:
    """Return whether a callback shows metrics on the terminal, where these would be too many."""
    return isinstance(callback, (PrinterCallback, ProgressCallback))


def _plain(optimizer: Any) -> Any:  # noqa: ANN401
    """Return the optimizer inside Accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)
