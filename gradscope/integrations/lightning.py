"""The callback for Lightning: `Trainer(callbacks=[GradscopeCallback()])`."""

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from gradscope.integrations.trainer_watch import CallbackArguments, TrainerWatch, callback_options
from gradscope.session.report import Report

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class GradscopeCallback(Callback):
    """Records the gradients of a training, logs their norms, and reports findings at its end.

    ```
    trainer = Trainer(callbacks=[GradscopeCallback(save="run.gradscope")])
    ```

    The trainer's loggers get `grad_norm/global`, `grad_norm/LAYER` and `gradscope/findings` every
    `log_every_n_steps` steps. Norms are those before clipping, without the scale of mixed
    precision. The training gives bit-identical results.
    """

    def __init__(self, **arguments: Unpack[CallbackArguments]) -> None:
        super().__init__()
        self._watch = TrainerWatch(callback_options(**arguments))

    @property
    def report(self) -> Report | None:
        """Report on the last `fit`; None before its end."""
        return self._watch.report

    def setup(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Start recording, before the optimizers are made."""
        # Validation and prediction run no backward.
        if stage != "fit":
            return
        rank, frame = trainer.global_rank if trainer.world_size > 1 else None, sys._getframe(1)
        is_resumed = _has_checkpoint(trainer, frame)
        self._watch.start(pl_module, None, frame, rank=rank, is_resumed=is_resumed)

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Count steps as the trainer does, which has restored its checkpoint by now."""
        self._watch.continue_at(trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: "Trainer",
        pl_module: "LightningModule",
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Log the metrics, as often as the trainer logs."""
        # A batch that only accumulates makes no step, and its gradients are partial.
        is_whole = not (pl_module.automatic_optimization and trainer.fit_loop._should_accumulate())
        if is_whole and trainer._logger_connector.should_update_logs and trainer.is_global_zero:
            _log(trainer, self._watch.metrics())

    def on_fit_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Report the findings.

        Raises:
            UnhealthyGradientsError: There are findings at or above `fail_level`.
        """
        _log(trainer, self._watch.finish(is_first_rank=trainer.is_global_zero))
        self._watch.check()

    def on_exception(
        self, trainer: "Trainer", pl_module: "LightningModule", exception: BaseException
    ) -> None:
        """Record the exception that ended the training."""
        self._watch.stop(exception)

    def teardown(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Stop recording."""
        self._watch.stop()


def _has_checkpoint(trainer: "Trainer", frame: FrameType | None) -> bool:
    """Return whether the trainer is about to restore a checkpoint: it does not say so yet."""
    while frame is not None:
        found = frame.f_locals
        if found.get("self") is trainer and "ckpt_path" in found:
            return found["ckpt_path"] is not None
        frame = frame.f_back
    return False


def _log(trainer: "Trainer", values: dict[str, float]) -> None:
    """Send metrics to the trainer's loggers, with epoch and step as Lightning's own have them."""
    if not values or not trainer.is_global_zero:
        return
    values = {**values, "epoch": float(trainer.current_epoch)}
    for logger in trainer.loggers:
        # The step of Lightning's own monitors, as of `LearningRateMonitor`.
        logger.log_metrics(values, step=trainer.fit_loop.epoch_loop._batches_that_stepped)
