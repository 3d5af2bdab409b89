"""Records a training script from the moment it has imported torch."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch

from gradscope.capture.training.given import GivenObjects
from gradscope.capture.training.pacing.budget import Budget
from gradscope.capture.training.running_watch import RunningWatch
from gradscope.capture.training.state import MakeCaptures
from gradscope.capture.training.steps.measurements import GradientStorage
from gradscope.errors import GradscopeError
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.meta import Header, run_header
from gradscope.recording.run_recorder import RunRecorder
from gradscope.recording.thinning.room import Room


class TrainingWatch:
    """Records what a script does with gradients, from `start` to `stop`.

    Args:
        recorder_path: File of the recording, created anew.
        command: The command, for the record.
        every: Measure the gradients of every Nth step; None for as many as the budget allows.
        budget: Share of the training's own time that recording may take; None for no limit.
        gradient_storage: Which gradients are stored.
        max_steps: Number of steps after which the recording ends; the script continues.
        on_step: Called with the number of recorded steps after each. Its exceptions come out of the
            optimizer's step.
        name: Name of what is recorded; by default that of the running script.
        given: Models and optimizers that exist already.
        make_captures: Returns the object that captures some steps in detail; None for no captures.
        sync_checks: Ranks compare digests of replicas in every Nth step; None for never.
        room: How much of a long training is kept; None for everything.
        keeps_batches: Whether the batches of steps with trouble are stored.
    """

    _current: ClassVar["TrainingWatch | None"] = None
    """The active recorder: there can be only one."""

    def __init__(  # noqa: PLR0913 - as many things can be chosen
        self,
        recorder_path: Path,
        command: str,
        *,
        every: int | None = None,
        budget: float | None = None,
        gradient_storage: GradientStorage | None = None,
        max_steps: int | None = None,
        on_step: Callable[[int], None] | None = None,
        name: str | None = None,
        given: GivenObjects | None = None,
        make_captures: MakeCaptures | None = None,
        sync_checks: int | None = None,
        room: Room | None = None,
        keeps_batches: bool = False,
    ) -> None:
        self._room, self._keeps_batches = room, keeps_batches
        self._make_captures, self._sync_checks = make_captures, sync_checks
        self._path, self._command, self._name = recorder_path, command, name
        self._given = given or GivenObjects()
        self._gradient_storage = gradient_storage or GradientStorage()
        self._every, self._budget = every, Budget(budget)
        self._max_steps, self._on_step = max_steps, on_step
        self._process = os.getpid()
        self._running: RunningWatch | None = None
        self._steps = 0
        """Number of steps recorded until the end."""

    @property
    def steps(self) -> int:
        """Number of steps recorded so far."""
        return self._steps if self._running is None else self._running.steps

    def start(self) -> None:
        """Start recording; torch has been imported by now.

        Raises:
            GradscopeError: Another watch is active, or the recording cannot be written.
        """
        self.check_alone()
        inherited = TrainingWatch._current
        if inherited is not None and inherited._running is not None:
            # Of the process that forked this one, which must not close the connection to its file.
            inherited._running.remove()
        header = self._header()
        # Before anything is installed: it fails if the file cannot be written.
        recorder = RunRecorder(self._path, header, self._room)
        self._running = RunningWatch(
            recorder,
            self._every,
            self._budget,
            self._gradient_storage,
            None if self._max_steps is None and self._on_step is None else self._after_step,
            keeps_batches=self._keeps_batches,
        )
        if self._sync_checks is not None:
            self._running.check_ranks(self._sync_checks)
        self._running.start(self._given, self._make_captures, header)
        TrainingWatch._current = self

    def stop(self, ending: RunEnding | None = None) -> None:
        """Finish the recording and restore torch. Further calls do nothing.

        Args:
            ending: The end of the training, if it is known.
        """
        # A forked process, as of a data loader, inherits the watch and the connection to its
        # file. SQLite allows no use of a connection after a fork.
        running, self._running = self._running, None
        if running is not None and os.getpid() == self._process:
            TrainingWatch._current = None
            running.stop(ending)
            self._steps = running.steps

    def see_end(self, error: BaseException) -> None:
        """Record the exception that ended the training, with its traceback."""
        if self._running is not None and os.getpid() == self._process:
            self._running.see_end(error)

    def continue_at(self, step: int) -> None:
        """Record that a trainer has resumed the training, behind a number of optimizer steps."""
        if self._running is not None and os.getpid() == self._process:
            self._running.continue_at(step)

    def flush(self) -> None:
        """Write the steps that are held."""
        if self._running is not None and os.getpid() == self._process:
            self._running.flush()

    @classmethod
    def check_alone(cls) -> None:
        """Check that no training is being recorded in this process.

        Raises:
            GradscopeError: One is.
        """
        current = cls._current
        if current is None or current._process != os.getpid():
            return
        if current._command == "watch":
            raise GradscopeError("another watch is active", help="stop it first: watch.stop()")
        raise GradscopeError(
            "gradscope run already records this training",
            help="run the script with python, or without gradscope.watch()",
        )

    def record_nothing(self, path: Path) -> None:
        """Write an empty recording."""
        RunRecorder(path, self._header()).close(None)

    def _header(self) -> Header:
        name, version = self._name or _script(), str(torch.__version__)
        return run_header(self._command, name, torch=version, threads=torch.get_num_threads())

    def _after_step(self) -> None:
        if self._running is None:  # it is being stopped, which made it record a last step
            return
        steps = self.steps
        if steps == self._max_steps:
            self.stop(RunEnding(kind="limited", message=f"--max-steps {steps}"))
        if self._on_step is not None:
            self._on_step(steps)


def _script() -> str:
    main = sys.modules.get("__main__")
    # Of `python -m package.module`, the file may be `__main__.py`: the module's name says more.
    specification = getattr(main, "__spec__", None)
    if specification is not None:
        return str(specification.name)
    file = getattr(main, "__file__", None)
    return Path(file).name if file else "script"
