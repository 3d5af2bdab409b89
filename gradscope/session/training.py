"""Optimizer steps on a target's batches, up to the step that is judged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradscope.capture.errors import StepFailedError
from gradscope.capture.step.assemble import Assembler
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.probes.clipping import ClipProbe
from gradscope.probes.optimizer_steps import OptimizerProbe
from gradscope.recording.records import GradientStat
from gradscope.session.steps import Stepper, WatchedStep
from gradscope.target.target import Target


class Training:
    """Goes to the step that is judged.

    That is the last one. Where the loss or a gradient stops being finite before, or autograd raises
    an exception, it is the first such step: afterwards nothing tells where it began.

    Every step is watched in full, so that whichever is judged need not be made again; of the others
    loss and gradient norms are kept.

    Args:
        target: What is trained.
        stepper: Makes the steps.
        probe: Makes the optimizer's part of them.
        assembler: Takes what is kept.
        clipping: Measures what clipping does to the gradients of each step; None for nothing.
    """

    def __init__(
        self,
        target: Target,
        stepper: Stepper,
        probe: OptimizerProbe,
        assembler: Assembler,
        clipping: ClipProbe | None = None,
    ) -> None:
        self._first = target
        self._stepper, self._probe = stepper, probe
        self._assembler = assembler
        self._clipping = clipping
        self._read = 0
        self.target = target
        """On the batch of the step that was made last."""
        self.made = 0
        """How many optimizer steps were made."""

    def judged_step(
        self, steps: int, batches: int, probe_making: Callable[[WatchedStep], None]
    ) -> WatchedStep:
        """Make optimizer steps, and return the watched step after them.

        Args:
            steps: How many.
            batches: How many are read afterwards; the last one's step is judged.
            probe_making: Is given the first step, before any of them.

        Raises:
            StepFailedError: Autograd ended a step, which is the one to be judged.
            GradscopeError: There is no way to a loss, or the user's code raised.
        """
        if not steps and batches == 1:
            return self._measured(self._stepper.make(self._first))
        given = iter(self._first.batches)
        while True:
            step = self._next_step(given)
            if self.made == steps:
                break
            gradients = step.measured.brief_parameters()
            ending = step.trouble(gradients) or self._obstacle()
            if ending is not None:
                self._skip_rest(ending, steps)
                return step
            if not self.made:
                probe_making(step)
            self._keep(step, gradients)
            with said_after(self.made):
                if self._clipping is not None:
                    self._clipping.clip()
                self._probe.move()
            self.made += 1
        for _ in range(batches - 1):
            step.capture.close()
            step = self._next_step(given)
        return step

    def _next_step(self, batches: Iterator[object]) -> WatchedStep:
        with said_after(self.made):
            batch = next(batches)
            if self._read:
                self.target = self._first.at(self._read, batch)
            self._read += 1
            return self._measured(self._stepper.make(self.target))

    def _measured(self, step: WatchedStep) -> WatchedStep:
        if self._clipping is not None:
            self._clipping.measure(made=self.made, loss=step.ending.loss)
        return step

    def _obstacle(self) -> str | None:
        """Return why the optimizer cannot make a step.

        Raises:
            GradscopeError: The optimizer was chosen, and another could.
        """
        obstacle = self._probe.obstacle
        if obstacle is not None and self._probe.is_users:
            raise GradscopeError(
                "steps cannot be made with the target's optimizer",
                cause=obstacle,
                help="AdamW, for one, can make them: --optimizer adamw",
            )
        return obstacle

    def _keep(self, step: WatchedStep, gradients: tuple[GradientStat | None, ...]) -> None:
        self._assembler.add_training_step(
            step.capture,
            step.measured,
            gradients,
            loss=step.ending.loss,
            optimizer=self._probe.description,
        )
        step.capture.close()

    def _skip_rest(self, reason: str, steps: int) -> None:
        left = steps - self.made
        plural = "s" if left > 1 else ""
        self._assembler.skip(f"the last {left} of {steps} training step{plural}", reason)


@contextmanager
def said_after(steps: int) -> Iterator[None]:
    """Let errors of the user's say after how many optimizer steps they came."""
    try:
        yield
    except StepFailedError:
        raise
    except GradscopeError as error:
        if not steps:
            raise
        raise told_after(steps, error) from error.__cause__


def told_after(steps: int, error: GradscopeError) -> GradscopeError:
    """Return an error that says after how many optimizer steps it came."""
    kind = UserCodeError if isinstance(error, UserCodeError) else GradscopeError
    plural = "s" if steps > 1 else ""
    told = kind(
        f"after {steps} optimizer step{plural}: {error.what}", cause=error.cause, help=error.help
    )
    told.__cause__ = error.__cause__
    return told
