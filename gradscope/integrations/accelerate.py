"""The tracker for Accelerate: `Accelerator(log_with=[GradscopeTracker(), "wandb"])`."""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, ClassVar, Unpack

from accelerate import Accelerator, PartialState
from accelerate.tracking import GeneralTracker

from gradscope.integrations.callback_arguments import CallbackArguments
from gradscope.integrations.trainer_watch import TrainerWatch, callback_options
from gradscope.session.report import Report


class GradscopeTracker(GeneralTracker):  # type: ignore[misc] # Accelerate has no types
    """Records the gradients of a training, and gives their norms to the other trackers.

    ```
    accelerator = Accelerator(log_with=[GradscopeTracker(save="run.gradscope"), "wandb"])
    accelerator.init_trackers("project")
    ```

    Recording starts with `init_trackers` and ends with `end_training`, which reports the findings.
    Each `accelerator.log` also logs `grad_norm/global`, `grad_norm/LAYER` and `gradscope/findings`
    with its step. Norms are those before clipping, without the scale of mixed precision. The
    training gives bit-identical results.
    """

    name: ClassVar[str] = "gradscope"
    requires_logging_directory: ClassVar[bool] = False
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
        state = PartialState()
        rank = state.process_index if state.num_processes > 1 else None
        self._watch.start(None, None, sys._getframe(1), rank=rank)

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
        self._watch.check()

    def _log(
        self, trackers: Sequence[GeneralTracker], values: dict[str, float], step: int | None
    ) -> None:
        for one in trackers if values else ():
            if one is not self:
                one.log(values, step=step)


def _trackers(frame: FrameType | None) -> list[GeneralTracker]:
    """Return the trackers of the accelerator that calls this one: it does not pass them."""
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Accelerator):
            return list(found.trackers)
        frame = frame.f_back
    return []
