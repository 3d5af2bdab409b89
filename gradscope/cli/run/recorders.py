"""Makes the recorders of a training: of the script, and of the ranks that it spawns."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradscope.frozen import dataclass
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
    from gradscope.capture.training.steps.measurements import GradientStorage
    from gradscope.capture.training.watch import TrainingWatch
    from gradscope.recording.thinning.room import Room
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
        else script_captures_by(
            Schedule(watch.tensor_every, watch.tensors_at or ()), checks_functions=True
        ),
        max_steps=watch.max_steps,
        on_step=on_step,
        sync_checks=watch.sync_checks,
        room=Room.of(watch.keeps),
        keeps_batches=watch.keeps_batches,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """How to watch a rank that the script starts; it is pickled, or passed on as text."""

    base: Path
    """Recording of the script itself: those of the ranks are named after it."""
    command: str
    watch: WatchOptions

    @classmethod
    def of(cls, text: str) -> "RankPlan":
        """Return the plan of a text."""
        values = json.loads(text)
        watch = WatchOptions(**values["watch"])
        return cls(base=Path(values["base"]), command=values["command"], watch=watch)

    @property
    def text(self) -> str:
        """Return the plan as a text."""
        # JSON has no paths.
        return json.dumps(asdict(self), default=str)

    def recorder(self, rank: int) -> "TrainingWatch":
        """Return the recorder of a rank, in its process."""
        from gradscope.recording.paths import remove_logs

        path = self.base.with_name(f"{self.base.stem}.rank{rank}{self.base.suffix}")
        # A script may spawn its ranks again.
        path.unlink(missing_ok=True)
        remove_logs(path)
        on_step = None if self.watch.stop_after is None else self._stop_after
        return training_watch(path, self.command, self.watch, on_step)

    def _stop_after(self, steps: int) -> None:
        from gradscope.launch.execution import stopping

        if self.watch.stop_after is not None and steps >= self.watch.stop_after:
            raise stopping(f"--stop-after {self.watch.stop_after}")


@dataclass(frozen=True, slots=True)
class WatchedRank:
    """The function of a spawned process, which is recorded while it runs."""

    function: Callable[..., object]
    plan: RankPlan

    def __call__(self, index: int, *args: object) -> None:
        """Run the function in the spawned process of an index."""
        watch = _started(self.plan, index)
        if watch is None:
            self.function(index, *args)
            return
        from gradscope.launch.execution import RETURNED, ending_by
        from gradscope.launch.tracebacks import drop_own_frames

        try:
            self.function(index, *args)
        except BaseException as error:
            # SystemExit and Ctrl-C end a rank, too.
            watch.see_end(error)
            watch.stop(ending_by(error))
            drop_own_frames(error)
            raise
        watch.stop(RETURNED)


def _started(plan: RankPlan, index: int) -> "TrainingWatch | None":
    """Return the running recorder; None if it fails, which is reported."""
    from gradscope.cli.errors import show_error
    from gradscope.errors import GradscopeError

    try:
        watch = plan.recorder(index)
        watch.start()
    except (OSError, GradscopeError) as error:
        show_error(error if isinstance(error, GradscopeError) else GradscopeError(str(error)))
        return None
    return watch


@contextmanager
def spawned_ranks_watched(plan: RankPlan) -> Iterator[None]:
    """Watch the processes that torch spawns inside the block; torch has been imported."""
    module = sys.modules.get("torch.multiprocessing.spawn")
    if module is None:  # `import torch` loads it
        yield
        return
    original = vars(module)["start_processes"]

    def start_processes(fn: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return original(WatchedRank(fn, plan), *args, **kwargs)

    # torch.multiprocessing has imported the function by its name.
    owners = (module, sys.modules["torch.multiprocessing"])
    for owner in owners:
        vars(owner)["start_processes"] = start_processes
    try:
        yield
    finally:
        for owner in owners:
            # Another library may have wrapped it since, and its wrapper stays.
            if vars(owner).get("start_processes") is start_processes:
                vars(owner)["start_processes"] = original
