"""`gradscope.watch`: records a training loop from Python."""

import os
import shutil
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import FrameType, TracebackType
from typing import Self

from torch import nn
from torch.optim import Optimizer

from gradscope.capture.training.given import GivenObjects, given_by
from gradscope.capture.training.locations import is_installed
from gradscope.capture.training.pacing.budget import DEFAULT, check_share
from gradscope.capture.training.steps.measurements import GradientStorage
from gradscope.capture.training.watch import TrainingWatch
from gradscope.errors import GradscopeError
from gradscope.export.live_metrics import MetricsLog
from gradscope.export.trackers import check_log
from gradscope.frozen import dataclass
from gradscope.launch.execution import ending_by
from gradscope.launch.options import WatchOptions
from gradscope.options.checks import WrongValue
from gradscope.options.recording_options import KEEP, KeepBatches
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.finding import Finding
from gradscope.recording.meta import has_no_gradients
from gradscope.recording.paths import check_free, remove_logs
from gradscope.recording.records import Recording
from gradscope.recording.rows_in_file import batches_in_memory, in_memory
from gradscope.recording.store import load_recording
from gradscope.recording.stored_gradient import KeepMode
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import check_settings, judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import Settings
from gradscope.session.arguments import check_arguments, documented
from gradscope.session.report import Report
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_captures_by
from gradscope.switch import is_off


@documented(WatchOptions, Settings)
def watch(  # noqa: PLR0913, D417 - as many things can be chosen, which their options document
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    *,
    save: str | PathLike[str] | None = None,
    force: bool = False,
    budget: float | None = DEFAULT,
    every: int | None = None,
    tensor_every: int | None = None,
    tensors: bool = True,
    keep_gradients: KeepMode = "none",
    keep_gradients_every: int = 100,
    sync_checks: int | None = None,
    keep: str | None = None,
    keep_batches: KeepBatches | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    log: str | Iterable[str] | None = None,
) -> "Watch":
    """Record every backward, clip and step of a training loop, as `gradscope run` does.

    ```
    with gradscope.watch() as watch:
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    print(watch.report())
    ```

    In a notebook, call `watch.start()` and `watch.stop()` in separate cells. The training gives
    bit-identical results, its exceptions pass through, and torch is left as it was. With
    `GRADSCOPE=off` in the environment, nothing is recorded and the report is empty.

    Args:
        model: The model; the report uses its parameter names. Without it, models are recognized by
            their calls.
        optimizer: The optimizer. Without it, optimizers are recognized by their steps.
        save: Write the recording to this file, for `gradscope report`. It holds every finished
            step, even if the process is killed. Without it, `watch.report().save(path)` writes one
            later.
        force: Overwrite an existing file.
        budget: Share of the training time that gradscope may take, 0.05 for 5 %. After the first
            steps, as many steps are measured as the budget allows. The order of calls is always
            recorded. None for no limit: gradients are measured in every step, and every tensor in
            every 100th.
        tensors: Whether to capture steps in detail. Without it, only parameters and the order of
            events are recorded.

    Raises:
        GradscopeError: An argument is wrong, or the file exists.
    """
    _check_objects(model, optimizer)
    check_arguments(
        WatchOptions,
        every=every,
        tensor_every=tensor_every,
        keep_gradients_every=keep_gradients_every,
        keep_gradients=keep_gradients,
        sync_checks=sync_checks,
        keep_batches=keep_batches,
    )
    room = _room(keep or KEEP)
    check_share(budget)
    settings = Settings(select=parsed_selectors(select), ignore=parsed_selectors(ignore))
    check_settings(settings)
    names = (log,) if isinstance(log, str) else tuple(log or ())
    for name in names:
        check_log(name)
    # The caller's frame has the script's names for the model and the optimizer.
    frame = sys._getframe(1)
    file = None if save is None else Path(save).absolute()
    if file is not None and not is_off():
        # Already here, so that a mistake shows before the training is set up.
        check_free(file, force=force)
    given = given_by(model, optimizer, frame)
    return Watch(
        given,
        _name_of(frame),
        file,
        force=force,
        frequency=Frequency(
            budget=budget,
            every=every,
            tensor_every=tensor_every,
            tensors=tensors,
            sync_checks=sync_checks,
            room=room,
            keeps_batches=keep_batches == "on-trouble",
        ),
        gradient_storage=GradientStorage(mode=keep_gradients, every=keep_gradients_every),
        settings=settings,
        log=names,
    )


def _check_objects(model: object, optimizer: object) -> None:
    """Check the types of the model and the optimizer.

    Raises:
        GradscopeError: One has a wrong type.
    """
    for name, value, kind in (("model", model, nn.Module), ("optimizer", optimizer, Optimizer)):
        if value is not None and not isinstance(value, kind):
            raise GradscopeError(
                f"{name} is of type {type(value).__name__}, expected {kind.__name__}",
                help=f"leave {name} out: the loop's own one is found automatically",
            )


def _room(keep: str) -> Room | None:
    """Return how much of the training is kept.

    Raises:
        GradscopeError: It is no size.
    """
    try:
        return Room.of(keep)
    except WrongValue as error:
        raise GradscopeError(f"keep {error.wrong}", help=error.help) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """How often to measure what, as the arguments of `watch` say."""

    budget: float | None
    every: int | None
    tensor_every: int | None
    tensors: bool
    sync_checks: int | None
    room: Room | None
    keeps_batches: bool


class Watch:
    """A recorded training loop, made by `gradscope.watch`."""

    def __init__(
        self,
        given: GivenObjects,
        name: str,
        file: Path | None,
        *,
        force: bool,
        frequency: "Frequency",
        gradient_storage: GradientStorage,
        settings: Settings,
        log: Sequence[str] = (),
    ) -> None:
        self._file, self._force, self._settings = file, force, settings
        folder = None if file is not None else Path(mkdtemp(prefix="gradscope-"))
        self._path = file or Path(folder or "", "watch.gradscope")
        metrics_log = MetricsLog(self._path, log, settings, _tell) if log else None
        self._log = metrics_log
        self._training = TrainingWatch(
            self._path,
            "watch",
            name=name,
            given=given,
            budget=frequency.budget,
            every=frequency.every,
            gradient_storage=gradient_storage,
            make_captures=script_captures_by(Schedule(frequency.tensor_every))
            if frequency.tensors
            else None,
            sync_checks=frequency.sync_checks,
            room=frequency.room,
            keeps_batches=frequency.keeps_batches,
            # Not through `self`: the training would keep the watch, which then is never dropped.
            on_step=None if metrics_log is None else lambda _: metrics_log.update(),
        )
        # A notebook's cell that runs again drops the watch that it started before.
        weakref.finalize(self, _drop, self._training, folder, os.getpid())
        self._state = "not started"
        self._last: tuple[tuple[str, int], Report] | None = None

    @property
    def path(self) -> Path:
        """File of the recording; it is removed with the watch unless `save` names it."""
        return self._path

    @property
    def is_recording(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._state == "watching"

    @property
    def steps(self) -> int:
        """Number of optimizer steps recorded."""
        return self._training.steps

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings in the steps so far, the worst first."""
        return self.report().findings

    def start(self) -> Self:
        """Start recording; `with` does it.

        Raises:
            GradscopeError: The watch was started before, another watch is active, or the recording
                cannot be written.
        """
        if self._state != "not started":
            is_over = self._state == "stopped"
            raise GradscopeError(
                f"this watch has been {'stopped' if is_over else 'started'} already",
                help="make a new one: gradscope.watch()" if is_over else None,
            )
        if is_off():
            self._state = "off"
            return self
        TrainingWatch.check_alone()
        if self._file is not None:
            # Again, because the file may have been made since `watch` was called.
            check_free(self._file, force=self._force)
            self._file.unlink(missing_ok=True)
            # SQLite would replay the old write-ahead log into the new file.
            remove_logs(self._file)
        self._training.start()
        self._state = "watching"
        return self

    def stop(self) -> None:
        """Stop recording, and leave torch as it was; `with` does it."""
        self._stop(None)

    def _stop(self, ending: RunEnding | None) -> None:
        if self._state == "watching":
            self._training.stop(ending)
            self._state = "stopped"
            # Behind the training, so that the last steps are logged, too.
            if self._log is not None:
                self._log.close()

    def continue_at(self, step: int) -> None:
        """Record that a trainer has resumed the training, behind a number of optimizer steps."""
        self._training.continue_at(step)

    def report(self) -> Report:
        """Judge the steps so far and return the report. It works during recording and after.

        Raises:
            GradscopeError: Nothing was recorded yet.
        """
        now = (self._state, self.steps)
        # Judging takes seconds, and a notebook shows a report more than once.
        if self._last is None or self._last[0] != now:
            # Repeated steps are held in memory until they are many.
            self._training.flush()
            recording = self._recording()
            report = Report.from_recording(recording, judge(recording, self._settings))
            self._last = (now, report)
        return self._last[1]

    def _recording(self) -> Recording:
        if self._state == "not started":
            raise GradscopeError(
                "this watch has not been started", help="with gradscope.watch() as watch:"
            )
        if self._state == "off":
            return self._nothing()
        recording = load_recording(self._path)
        if self._file is None:  # it is removed with this watch
            recording = replace(
                recording,
                file="",
                stored_gradients=in_memory(recording.stored_gradients),
                kept_batches=batches_in_memory(recording.kept_batches),
            )
        if not has_no_gradients(recording):
            return recording
        if self._state == "watching":
            raise GradscopeError(
                "no optimizer has stepped yet: there is nothing to report",
                help="gradients without a step are reported once the watch has stopped",
            )
        raise GradscopeError(
            "backward was not called between start and stop: there is nothing to report",
            help="the training must run in this process, between start and stop",
        )

    def _nothing(self) -> Recording:
        with TemporaryDirectory(prefix="gradscope-") as folder:
            path = Path(folder, "nothing.gradscope")
            self._training.record_nothing(path)
            return replace(load_recording(path), file="")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._state == "watching":
            # Before the stop, which closes the file.
            self._training.see_end(error)
        self._stop(None if error is None else ending_by(error))

    def __repr__(self) -> str:
        return f"<gradscope.watch: {self._state}, steps: {self.steps}>"

    def _repr_html_(self) -> str | None:
        try:
            return self.report()._repr_html_()
        except GradscopeError:
            return None  # a notebook shows the line above


def _tell(reason: str) -> None:
    print(f"note: {reason}", file=sys.stderr)  # noqa: T201 - as the command does


def _drop(training: TrainingWatch, folder: Path | None, process: int) -> None:
    """End a watch without references, or at Python's exit, and remove its folder."""
    training.stop()
    # A forked child must not remove the folder of its parent.
    if folder is not None and os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _name_of(frame: FrameType) -> str:
    """Return the name of the training: its file, or a substitute."""
    file = frame.f_code.co_filename
    # ipykernel names each cell after a temporary file, which means nothing to a reader.
    is_file = Path(file).exists() and "ipykernel" not in file and not is_installed(file)
    return Path(file).name if is_file else "notebook"
