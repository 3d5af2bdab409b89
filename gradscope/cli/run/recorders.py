"""Makes the recorder of a training as the options of `gradscope run` say."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.launch.options import WatchOptions

if TYPE_CHECKING:
    from gradscope.capture.training.watch import TrainingWatch


def training_watch(
    path: Path,
    command: str,
    watch: WatchOptions,
    on_step: Callable[[int], None] | None = None,
) -> "TrainingWatch":
    """Return the recorder of a training; torch has been imported.

    Args:
        path: File of the recording.
        command: As typed, for the record.
        watch: How much is recorded.
        on_step: Called with the number of steps after each.
    """
    from gradscope.capture.training.steps.stored_gradients import GradientStorage
    from gradscope.capture.training.watch import TrainingWatch
    from gradscope.step_capture.schedule import Schedule
    from gradscope.step_capture.script_captures import script_captures_by

    return TrainingWatch(
        path,
        command,
        budget=watch.share,
        every=watch.every,
        gradient_storage=GradientStorage(
            mode=watch.keep_gradients, every=watch.keep_gradients_every
        ),
        make_captures=None
        if watch.no_tensors
        else script_captures_by(Schedule(watch.tensor_every, watch.tensors_at or ())),
        max_steps=watch.max_steps,
        on_step=on_step,
        sync_checks=watch.sync_checks,
    )
