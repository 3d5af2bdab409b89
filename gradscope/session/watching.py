"""`gradscope.watch`: watches a training loop of one's own, from Python."""

import os
import shutil
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import FrameType, TracebackType
from typing import Self

from torch import nn
from torch.optim import Optimizer

from gradscope.capture.training.budget import DEFAULT, check_share
from gradscope.capture.training.given import Given, given_by
from gradscope.capture.training.stored_gradients import Keeping
from gradscope.capture.training.watch import TrainingWatch
from gradscope.errors import GradscopeError
from gradscope.launch.endings import ending_by
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording
from gradscope.recording.run_ending import RunEnding
from gradscope.recording.run_header import says_nothing
from gradscope.recording.store import load_recording
from gradscope.recording.stored_gradient import KeepMode, check_keep_mode
from gradscope.recording.stored_gradient_tables import in_memory
from gradscope.recording.writer import check_free, remove_logs
from gradscope.rules.engine import check_settings, judge
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import Settings
from gradscope.session.report import Report
from gradscope.step_capture.schedule import Schedule
from gradscope.step_capture.script_captures import script_looks
from gradscope.switch import is_off


def watch(  # noqa: PLR0913 - as many things can be chosen
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
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
) -> "Watch":
    """Watch every backward, clip and step of a training loop, as `gradscope run` does.

    ```
    with gradscope.watch() as watch:
        for x, y in batches:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    print(watch.report())
    ```

    In a notebook, `watch.start()` and `watch.stop()` may stand in cells of their own. The training
    is the same to the last bit; its exceptions pass through; torch is left as it was found. With
    `GRADSCOPE=off` in the environment nothing is watched, and the report is empty.

    Args:
        model: Is named in the report as it is here. Without it, models are known by their calls.
        optimizer: Likewise; without it, optimizers are known by their steps.
        save: A file to keep the recording in, which `gradscope report` reads; it holds every
            finished step, whatever becomes of the process. Without it, `watch.report().save(path)`
            writes one later.
        force: Write over a file that exists.
        budget: The share of the training's own time that watching may take, 0.05 for 5 %. Beyond
            the first steps, as many are measured as it pays for; the order of calls is seen in all.
            None for no limit: gradients are measured in every step, and every tensor in every
            hundredth.
        every: Measure the gradients of every Nth step, whatever the budget.
        tensor_every: Look at every tensor of the first steps and of every Nth, whatever the budget;
            0 for the first alone.
        tensors: Whether any tensor is looked at; without, parameters and the order of events are
            recorded alone.
        keep_gradients: Keep the gradients themselves, so that `gradscope compare` can compare them:
            `exact`, every element, or `sketch`, 4,096 numbers of each large parameter.
        keep_gradients_every: Those of the first step of each optimizer, and of every so manieth.
        select: Only these rules judge: codes, prefixes of codes, families and names of rules. No
            configuration file is read.
        ignore: These rules do not.

    Raises:
        GradscopeError: An argument is wrong, or the file exists.
    """
    _check_objects(model, optimizer)
    for number, value, least in (
        ("every", every, 1),
        ("tensor_every", tensor_every, 0),
        ("keep_gradients_every", keep_gradients_every, 1),
    ):
        if value is not None:
            _check_number(number, value, least)
    check_share(budget)
    check_keep_mode(keep_gradients)
    settings = Settings(select=parsed_selectors(select), ignore=parsed_selectors(ignore))
    check_settings(settings)
    frame = sys._getframe(1)
    file = None if save is None else Path(save).absolute()
    if file is not None and not is_off():
        check_free(file, force=force)
    given = given_by(model, optimizer, frame)
    return Watch(
        given,
        _name_of(frame),
        file,
        force=force,
        frequency=_Frequency(
            budget=budget, every=every, tensor_every=tensor_every, tensors=tensors
        ),
        keeping=Keeping(mode=keep_gradients, every=keep_gradients_every),
        settings=settings,
    )


def _check_objects(model: object, optimizer: object) -> None:
    """Make sure that a model and an optimizer are what they are called.

    Raises:
        GradscopeError: One is not.
    """
    for name, value, kind in (("model", model, nn.Module), ("optimizer", optimizer, Optimizer)):
        if value is not None and not isinstance(value, kind):
            raise GradscopeError(
                f"{name} is of type {type(value).__name__}, expected {kind.__name__}",
                help=f"leave {name} out: what the loop calls is found by itself",
            )


def _check_number(name: str, value: object, least: int) -> None:
    """Make sure that a number of steps is one.

    Raises:
        GradscopeError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise GradscopeError(f"{name} is {value!r}, expected {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frequency:
    """How often what is measured; as the arguments of `watch` say."""

    budget: float | None
    every: int | None
    tensor_every: int | None
    tensors: bool


class Watch:
    """A training loop under watch, made by `gradscope.watch`."""

    def __init__(
        self,
        given: Given,
        name: str,
        file: Path | None,
        *,
        force: bool,
        frequency: "_Frequency",
        keeping: Keeping,
        settings: Settings,
    ) -> None:
        self._file, self._force, self._settings = file, force, settings
        folder = None if file is not None else Path(mkdtemp(prefix="gradscope-"))
        self._path = file or Path(folder or "", "watch.gradscope")
        self._training = TrainingWatch(
            self._path,
            "watch",
            name=name,
            given=given,
            budget=frequency.budget,
            every=frequency.every,
            keeping=keeping,
            make_looks=script_looks(Schedule(frequency.tensor_every))
            if frequency.tensors
            else None,
        )
        # A notebook's cell that is run again drops the watch that it has started before.
        weakref.finalize(self, _drop, self._training, folder, os.getpid())
        self._state = "not started"
        self._last: tuple[tuple[str, int], Report] | None = None

    @property
    def steps(self) -> int:
        """How many steps of optimizers were seen."""
        return self._training.steps

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules find in the steps so far, the worst first."""
        return self.report().findings

    def start(self) -> Self:
        """Begin to watch; `with` does it.

        Raises:
            GradscopeError: It has been started before, another watch goes on, or the recording
                cannot be written.
        """
        if self._state != "not started":
            is_over = self._state == "stopped"
            raise GradscopeError(
                f"this watch has been {'stopped' if is_over else 'started'} already",
                help="make another: gradscope.watch()" if is_over else None,
            )
        if is_off():
            self._state = "off"
            return self
        TrainingWatch.check_alone()
        if self._file is not None:
            check_free(self._file, force=self._force)
            self._file.unlink(missing_ok=True)
            remove_logs(self._file)
        self._training.start()
        self._state = "watching"
        return self

    def stop(self) -> None:
        """End the watching, and leave torch as it was found; `with` does it."""
        self._stop(None)

    def _stop(self, ending: RunEnding | None) -> None:
        if self._state == "watching":
            self._training.stop(ending)
            self._state = "stopped"

    def report(self) -> Report:
        """Judge the steps so far, and return the report on them; while it watches and after.

        Raises:
            GradscopeError: Nothing was seen yet.
        """
        now = (self._state, self.steps)
        if self._last is None or self._last[0] != now:
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
        if self._file is None:  # it goes with this watch
            recording = replace(recording, kept_gradients=in_memory(recording.kept_gradients))
        if not says_nothing(recording):
            return recording
        if self._state == "watching":
            raise GradscopeError(
                "no optimizer has made a step yet: there is nothing to report",
                help="gradients without a step are reported once the watch has stopped",
            )
        raise GradscopeError(
            "backward was never called while it was watched: there is nothing to report",
            help="the training has to run in this process, between start and stop",
        )

    def _nothing(self) -> Recording:
        with TemporaryDirectory(prefix="gradscope-") as folder:
            path = Path(folder, "nothing.gradscope")
            self._training.record_nothing(path)
            return load_recording(path)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._state == "watching":
            self._training.see_end(error)
        self._stop(None if error is None else ending_by(error))

    def __repr__(self) -> str:
        return f"<gradscope.watch: {self._state}, steps: {self.steps}>"

    def _repr_html_(self) -> str | None:
        try:
            return self.report()._repr_html_()
        except GradscopeError:
            return None  # a notebook shows the line above


def _drop(training: TrainingWatch, folder: Path | None, process: int) -> None:
    """End a watch that nobody holds any more, or when Python ends, and remove its folder."""
    training.stop()
    if folder is not None and os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _name_of(frame: FrameType) -> str:
    """Return what to call the training: its file, or what stands for one."""
    file = frame.f_code.co_filename
    is_file = Path(file).exists() and "ipykernel" not in file
    return Path(file).name if is_file else "notebook"
