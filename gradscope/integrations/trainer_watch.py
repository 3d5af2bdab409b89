"""What the callbacks of all trainers share: their arguments, and one watch around a fit."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TypedDict, get_args

from torch import nn
from torch.optim import Optimizer

from gradscope.capture.training.given import GivenObjects
from gradscope.capture.training.history.references import name_of
from gradscope.capture.training.locations import Locations
from gradscope.capture.training.pacing.budget import DEFAULT, check_share
from gradscope.capture.training.steps.measurements import GradientStorage
from gradscope.capture.training.watch import TrainingWatch
from gradscope.errors import GradscopeError
from gradscope.export.live_metrics import FINDINGS, LOSS, RATE, LiveMetrics, Pace
from gradscope.frozen import dataclass
from gradscope.integrations.assertions import UnhealthyGradientsError, failure_message
from gradscope.integrations.saved_recording import SavedRecording
from gradscope.launch.options import WatchOptions
from gradscope.options.recording_options import KEEP
from gradscope.recording.finding import Severity, at_least
from gradscope.recording.paths import remove_recording
from gradscope.recording.store import load_recording
from gradscope.recording.thinning.room import Room
from gradscope.rules.engine import check_settings, judge, judge_job
from gradscope.rules.selection import parsed_selectors
from gradscope.rules.settings import Settings
from gradscope.session.arguments import check_arguments
from gradscope.session.report import Report
from gradscope.session.watching import Frequency, Watch
from gradscope.switch import is_off

_BETWEEN_JUDGEMENTS = 10.0
"""Smallest number of seconds between two judgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackOptions:
    """Arguments of a callback, checked."""

    save: Path | None
    fail_level: Severity | None
    frequency: Frequency
    settings: Settings


def callback_options(
    *,
    save: str | PathLike[str] | None = None,
    fail_level: Severity | None = None,
    budget: float | None = DEFAULT,
    every: int | None = None,
    tensor_every: int | None = None,
    tensors: bool = True,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
) -> CallbackOptions:
    """Return the arguments of a callback, after a check.

    Args:
        save: File of the recording. A number is added if it exists, and the rank in a distributed
            job. A training that is resumed from a checkpoint continues the recording. Without it,
            there is no file.
        fail_level: Raise `UnhealthyGradientsError` at the end of the training if there are findings
            of this level or above.
        budget: As for `gradscope.watch`.
        every: As for `gradscope.watch`.
        tensor_every: As for `gradscope.watch`.
        tensors: As for `gradscope.watch`.
        select: Rules to run.
        ignore: Rules to leave out.

    Raises:
        GradscopeError: An argument is wrong.
    """
    if fail_level is not None and fail_level not in get_args(Severity):
        choices = ", ".join(get_args(Severity))
        raise GradscopeError(f"fail_level is {fail_level!r}, expected one of {choices}")
    check_share(budget)
    check_arguments(WatchOptions, every=every, tensor_every=tensor_every)
    settings = Settings(select=parsed_selectors(select), ignore=parsed_selectors(ignore))
    check_settings(settings)
    return CallbackOptions(
        save=None if save is None else Path(save).absolute(),
        fail_level=fail_level,
        frequency=Frequency(
            room=Room.of(KEEP),
            budget=budget,
            every=every,
            tensor_every=tensor_every,
            tensors=tensors,
            sync_checks=None,
            keeps_batches=False,
        ),
        settings=settings,
    )


class TrainerWatch:
    """Records the trainings of one trainer; further ones continue the same recording's name."""

    def __init__(self, options: CallbackOptions, name: str = "GradscopeCallback") -> None:
        self._options, self._name = options, name
        self._watch: Watch | None = None
        self._metrics: LiveMetrics | None = None
        self._judgements = Pace(_BETWEEN_JUDGEMENTS)
        self._findings: int | None = None
        self._saved: SavedRecording | None = None
        self._first_step = 0
        self.report: Report | None = None
        """Report on the last training that has ended; None before."""

    def start(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        frame: FrameType | None,
        *,
        rank: int | None,
        is_resumed: bool = False,
    ) -> None:
        """Start recording, unless `gradscope run` or a watch of the script already does.

        Args:
            model: The model; it gets its name in the user's code. None: the model that is called.
            optimizer: The optimizer, if it exists.
            frame: The frame that is running.
            rank: Rank of this process; None if it is the only one.
            is_resumed: Whether the trainer resumes from a checkpoint; `continue_at` says at which
                step.
        """
        self.stop()
        self._watch = self._metrics = self._findings = self.report = self._saved = None
        self._first_step = 0
        try:
            TrainingWatch.check_alone()
            if self._options.save is not None and not is_off():
                self._saved = SavedRecording.choose(self._options.save, rank, is_resumed=is_resumed)
        except GradscopeError as error:
            # A training must not fail because it cannot be recorded.
            _tell(f"{self._name} does nothing: {error.what}")
            return
        locations = Locations()
        users = locations.users(frame)
        given = GivenObjects(
            model=model,
            model_name=None if model is None else name_of(model, users),
            optimizer=optimizer,
            optimizer_name=None if optimizer is None else name_of(optimizer, users),
            made_at=locations.of(frame),
        )
        self._watch = Watch(
            given,
            Path(users[-1].f_code.co_filename).name if users else "training",
            None if self._saved is None else self._saved.part,
            force=self._saved is not None and self._saved.is_continued,
            frequency=self._frequency(),
            gradient_storage=GradientStorage(),
            settings=self._options.settings,
        ).start()
        # The first seconds have too few steps to judge.
        self._judgements.postpone()
        if self._watch.is_recording:
            self._metrics = LiveMetrics(self._watch.path)

    def resume(self, frame: FrameType | None, *, rank: int | None, step: int) -> None:
        """Continue the recording of the training before, instead of a new one.

        Does nothing if the training has made a step already.

        Args:
            frame: The frame that is running.
            rank: Rank of this process; None if it is the only one.
            step: Number of optimizer steps at the checkpoint.
        """
        watch, saved = self._watch, self._saved
        if watch is None or saved is None or not watch.is_recording or watch.steps:
            return
        self.stop()
        # It was begun for a new training, and has no step.
        remove_recording(saved.file)
        self.start(None, None, frame, rank=rank, is_resumed=True)
        self.continue_at(step)

    @property
    def steps(self) -> int:
        """Number of optimizer steps of the training, those before it was resumed included."""
        return 0 if self._watch is None else self._first_step + self._watch.steps

    def continue_at(self, step: int) -> None:
        """Count steps from that of the trainer's checkpoint, if the recording is continued."""
        if self._watch is not None and self._saved is not None and self._saved.is_continued:
            self._first_step = step
            self._watch.continue_at(step)

    def metrics(self) -> dict[str, float]:
        """Return the gradient norms last measured since the last call, and the findings.

        Loss and learning rate are left out: the trainer logs its own.
        """
        if self._watch is None or self._metrics is None or not self._watch.is_recording:
            return {}
        values: dict[str, float] = {}
        # Of the steps since the last log, each number is that of the last step that measured it.
        for one in self._metrics.read():
            values.update(one.values)
        values = {name: value for name, value in values.items() if name not in (LOSS, RATE)}
        if values and self._judgements.is_due:
            with self._judgements, suppress(GradscopeError):  # the end of the training tells it
                recording = load_recording(self._file(self._watch))
                self._findings = len(judge(recording, self._options.settings).findings)
        if values and self._findings is not None:
            values[FINDINGS] = float(self._findings)
        return values

    def stop(self, error: BaseException | None = None) -> None:
        """Stop recording. Further calls do nothing."""
        if self._watch is None or not self._watch.is_recording:
            return
        if error is None:
            self._watch.stop()
        else:
            # Not `stop`: the recording then has the reason and the place of the end.
            self._watch.__exit__(type(error), error, error.__traceback__)
        self._join()

    def finish(self, *, is_first_rank: bool) -> dict[str, float]:
        """Stop recording, print the findings on the first rank, and return the last metrics."""
        watch = self._watch
        if watch is None or not watch.is_recording:
            return {}
        # Before the stop: afterwards nothing is read any more.
        values = self.metrics()
        self.stop()
        if is_off():
            return values
        try:
            self.report = self._report(watch, of_all_ranks=is_first_rank)
        except GradscopeError as error:
            _tell(error.what)
            return values
        values[FINDINGS] = float(len(self.report.findings))
        if is_first_rank:
            self._show(self.report)
        return values

    def check(self) -> None:
        """Raise if the findings of the last training are to fail.

        Raises:
            UnhealthyGradientsError: There are findings at or above `fail_level`.
        """
        level, report = self._options.fail_level, self.report
        if level is None or report is None:
            return
        failing = tuple(one for one in report.findings if one.severity in at_least(level))
        if failing:
            text = failure_message(report, failing, None)
            raise UnhealthyGradientsError(text, report, failing)

    def _frequency(self) -> Frequency:
        frequency = self._options.frequency
        return frequency if self._saved is None else replace(frequency, room=self._saved.room())

    def _file(self, watch: Watch) -> Path:
        """Return the file of the whole recording."""
        return watch.path if self._saved is None else self._saved.file

    def _join(self) -> None:
        if self._saved is None:
            return
        try:
            self._saved.join()
        except GradscopeError as error:
            _tell(error.what)

    def _report(self, watch: Watch, *, of_all_ranks: bool) -> Report:
        """Return the report on all parts of the training, and on all ranks if wanted.

        Raises:
            GradscopeError: Nothing was recorded.
        """
        saved, settings = self._saved, self._options.settings
        if saved is None:
            return watch.report()
        # On the first rank only, because all ranks would print the same.
        if of_all_ranks:
            found = saved.of_all_ranks()
            for rank, reason in found.missing:
                _tell(f"the report is without rank {rank}: {reason}")
            if len(ranks := found.recordings) > 1:
                return Report.from_recording(ranks[0], judge_job(ranks, settings), ranks)
        if not saved.is_continued:
            return watch.report()
        recording = load_recording(saved.file)
        return Report.from_recording(recording, judge(recording, settings))

    def _show(self, report: Report) -> None:
        print(repr(report), file=sys.stderr)  # noqa: T201 - the report of the training
        if self._saved is not None:
            _tell(f"wrote {self._saved.file}")


def _tell(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)  # noqa: T201 - as the command does


class CallbackArguments(TypedDict, total=False):
    """Arguments of a callback."""

    save: str | PathLike[str] | None
    """File of the recording. A number is added if it exists, and the rank in a distributed job. A
    training that is resumed from a checkpoint continues the recording. Without it, there is no
    file."""
    fail_level: Severity | None
    """Raise `UnhealthyGradientsError` at the end if there are findings of this level or above."""
    budget: float | None
    every: int | None
    tensor_every: int | None
    tensors: bool
    """These four are those of `gradscope.watch`."""
    select: str | Iterable[str]
    """Rules to run."""
    ignore: str | Iterable[str]
    """Rules to leave out."""
