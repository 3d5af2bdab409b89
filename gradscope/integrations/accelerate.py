"""The tracker for Accelerate: `Accelerator(log_with=[GradscopeTracker(), "wandb"])`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Unpack

from accelerate import Accelerator, PartialState
from accelerate.tracking import GeneralTracker

from gradscope.integrations.trainer_watch import CallbackArguments, TrainerWatch, callback_options
from gradscope.session.report import Report

_STEP_FILE = "gradscope.json"
"""File in a checkpoint's folder that holds the number of optimizer steps."""


class GradscopeTracker(GeneralTracker):  # type: ignore[misc] # Accelerate has no types
    """Records the gradients of a training, and gives their norms to the other trackers.

    ```
    accelerator = Accelerator(log_with=[GradscopeTracker(save="run.gradscope"), "wandb"])
    accelerator.init_trackers("project")
    ```

    Recording starts with `init_trackers` and ends with `end_training`, which reports the findings.
    Each `accelerator.log` also logs `grad_norm/global`, `grad_norm/LAYER` and `gradscope/findings`
    with its step. A training that `accelerator.load_state` resumes after `init_trackers` continues
    the recording. Norms are those before clipping, without the scale of mixed precision. The
    training gives bit-identical results.
    """

    name: ClassVar[str] = "gradscope"
    requires_logging_directory: ClassVar[bool] = False
    # Every rank records itself: Accelerate would otherwise start trackers on the first one only.
    main_process_only: ClassVar[bool] = False

    def __init__(self, **arguments: Unpack[CallbackArguments]) -> None:
        super().__init__()
        self._watch = TrainerWatch(callback_options(**arguments), "GradscopeTracker")

    @property
    def tracker(self) -> "GradscopeTracker":
        """This tracker: nothing else does its work."""
        return self

    @property
    def report(self) -> Report | None:
        """Report on the training; None before its end."""
        return self._watch.report

    def start(self) -> None:
        """Start recording."""
        frame = sys._getframe(1)
        self._watch.start(None, None, frame, rank=_rank())
        if (accelerator := _accelerator(frame)) is not None:
            accelerator.register_save_state_pre_hook(self._save_step)
            accelerator.register_load_state_pre_hook(self._resume)

    def log(self, values: dict[str, Any], step: int | None = None, **_: object) -> None:
        """Log the metrics, with the step of the script."""
        if PartialState().is_main_process:
            self._log(_trackers(sys._getframe(1)), self._watch.metrics(), step)

    def finish(self) -> None:
        """Report the findings.

        Raises:
            UnhealthyGradientsError: There are findings at or above `fail_level`.
        """
        is_first = PartialState().is_main_process
        values = self._watch.finish(is_first_rank=is_first)
        trackers = _trackers(sys._getframe(1))
        if is_first and self in trackers:  # those before it have finished
            self._log(trackers[trackers.index(self) :], values, None)
        # Last, because it raises: all trackers shall have their values.
        self._watch.check()

    def _save_step(self, models: object, weights: object, folder: str) -> None:
        """Write the step into a checkpoint."""
        if PartialState().is_main_process:
            text = json.dumps({"step": self._watch.steps})
            # The first rank alone: all ranks write to the same folder.
            Path(folder, _STEP_FILE).write_text(text, encoding="utf-8")

    def _resume(self, models: object, folder: str) -> None:
        """Continue the recording at the step of a checkpoint, if it was made with this tracker."""
        try:
            step = json.loads(Path(folder, _STEP_FILE).read_text(encoding="utf-8"))["step"]
        # A checkpoint of a training without this tracker has no such file.
        except (OSError, ValueError, LookupError, TypeError):
            return
        if isinstance(step, int):
            self._watch.resume(sys._getframe(1), rank=_rank(), step=step)

    def _log(
        self, trackers: Sequence[GeneralTracker], values: dict[str, float], step: int | None
    ) -> None:
        for one in trackers if values else ():
            if one is not self:
                one.log(values, step=step)


def _rank() -> int | None:
    state = PartialState()
    return state.process_index if state.num_processes > 1 else None


def _trackers(frame: FrameType | None) -> list[GeneralTracker]:
    """Return the trackers of the accelerator that calls this one."""
    accelerator = _accelerator(frame)
    return [] if accelerator is None else list(accelerator.trackers)


def _accelerator(frame: FrameType | None) -> Accelerator | None:
    """Return the accelerator that calls this tracker: it does not pass itself."""
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Accelerator):
            return found
        frame = frame.f_back
    return None
