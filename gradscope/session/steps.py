"""Runs and records steps of a target: a forward and backward, and optimizer steps before it."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Self

import torch
from torch import Tensor

from gradscope.capture.compiler import watchable
from gradscope.capture.errors import (
    StepFailedError,
    autograd_error,
    backward_failed,
    is_autograds,
    subject_of,
)
from gradscope.capture.naming import NamedModel
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.measurements import Measurements
from gradscope.capture.step.sites import SiteMode
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.frozen import dataclass
from gradscope.probes.clipping import ClipProbe
from gradscope.probes.optimizer_steps import OptimizerProbe
from gradscope.probes.snapshot import RandomStates
from gradscope.progress import tell_stage
from gradscope.recording.records import GradientStat
from gradscope.target.target import Outcome, Target

_REMEMBERED = 8
"""Number of forwards whose lines are kept. A later forward may reuse part of their graphs."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The parts of an outcome that are needed once its tensors are freed."""

    loss: float | None
    description: str
    synthetic: bool
    terms: int = 0

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """Return the ending of an outcome."""
        loss = outcome.loss.detach()
        return cls(
            loss=float(loss) if loss.numel() == 1 else None,
            description=outcome.description,
            synthetic=outcome.synthetic,
            # Their number alone: the tensors would keep the graph.
            terms=len(outcome.terms),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedStep:
    """A recorded forward and backward. The gradients are in the parameters."""

    capture: StepCapture
    ending: Ending
    measured: Measurements
    random_states: RandomStates
    """Random states at the start of the forward."""

    def trouble(self, gradients: Iterable[GradientStat | None]) -> str | None:
        """Return the non-finite ones among loss and gradients in words; None if all are finite."""
        loss = self.ending.loss
        if loss is not None and not math.isfinite(loss):
            return f"the loss is {'NaN' if math.isnan(loss) else 'infinite'}"
        broken = sum(bool(gradient and gradient.is_broken) for gradient in gradients)
        plural = "s" if broken > 1 else ""
        return f"the gradient of {broken} parameter{plural} is not finite" if broken else None


class Stepper:
    """Makes recorded steps of a target, each starting with gradients of None.

    Args:
        named: The parameters and modules of the target's model.
        opaque: Whether compiled code runs, which must not meet modes or hooks.
    """

    def __init__(self, named: NamedModel, *, opaque: bool) -> None:
        self._named = named
        self._opaque = opaque
        self._others: dict[Tensor, Tensor | None] = {}
        """Leaves outside the model, such as a loss's parameters, and their original gradients."""
        self.earlier: deque[SiteMode] = deque(maxlen=_REMEMBERED)
        """The lines of the latest forwards."""

    def make(self, target: Target) -> WatchedStep:
        """Make one step.

        Raises:
            StepFailedError: Autograd ended the step.
            GradscopeError: The target gives no loss, or the user's code raised.
        """
        # Not `zero_grad`: an unreached parameter must stay at None.
        for tensor in (*self._named.parameters, *self._others):
            tensor.grad = None
        random_states = RandomStates.now()
        capture = StepCapture(self._named.parameters, opaque=self._opaque)
        # The caller may inspect in inference mode, or under `no_grad`.
        with torch.inference_mode(False), torch.enable_grad():
            outcome = self._forward(target, capture)
            capture.trace(outcome.loss)
            for leaf in capture.other_leaves():
                # `setdefault`, because later steps would remember the gradient of this one.
                self._others.setdefault(leaf, leaf.grad)
                leaf.grad = None
            measured = _measured(capture, outcome)
        self.earlier.append(capture.sites)
        return WatchedStep(
            capture=capture,
            ending=Ending.of(outcome),
            measured=measured,
            random_states=random_states,
        )

    def put_back_gradients(self) -> None:
        """Restore the gradients of leaves outside the model."""
        for leaf, gradient in self._others.items():
            leaf.grad = gradient

    def _forward(self, target: Target, capture: StepCapture) -> Outcome:
        try:
            with nullcontext() if self._opaque else watchable(), capture.forward():
                return target.forward()
        except GradscopeError as error:
            raised = autograd_error(error)
            if raised is None:
                raise
            raise StepFailedError(error, raised, capture, subject_of(error)) from raised


def _measured(capture: StepCapture, outcome: Outcome) -> Measurements:
    try:
        return capture.backward(outcome.loss, outcome.grad_output)
    except GradscopeError:
        raise
    except Exception as error:
        if not is_autograds(error):
            raise
        shown = backward_failed(capture, error)
        raise StepFailedError(shown, error, capture, outcome.description) from error


class Training:
    """Trains a target up to the judged step.

    The judged step is the last one. If the loss or a gradient becomes non-finite before, or
    autograd raises, it is the first such step: later steps do not show the origin.

    Every step is recorded in full, because any of them may be the judged one. Of the others, only
    loss and gradient norms are kept.

    Args:
        target: The target to train.
        stepper: Makes the steps.
        probe: Makes the optimizer steps.
        assembler: Receives the records.
        clipping: Measures the effect of clipping on the gradients of each step; None for no
            measurement.
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
        """The target with the batch of the latest step."""
        self.made = 0
        """Number of optimizer steps made."""

    def judged_step(
        self, steps: int, batches: int, probe_making: Callable[[WatchedStep], None]
    ) -> WatchedStep:
        """Make optimizer steps, and return the recorded step after them.

        Args:
            steps: Number of optimizer steps.
            batches: Number of batches to run afterwards; the step of the last one is judged.
            probe_making: Called with the first step, before any optimizer step.

        Raises:
            StepFailedError: Autograd ended a step, which is then the judged one.
            GradscopeError: The target gives no loss, or the user's code raised.
        """
        if not steps and batches == 1:
            tell_stage("running the forward and the backward")
            return self._measured(self._stepper.make(self._first))
        # One iterator for all steps, because a new one would begin with the first batch again.
        given = iter(self._first.batches)
        while True:
            tell_stage(f"training: step {self.made + 1} of {steps + 1}")
            step = self._next_step(given)
            if self.made == steps:
                break
            gradients = step.measured.brief_parameters()
            ending = step.trouble(gradients) or self._skip_reason()
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
        for number in range(1, batches):
            tell_stage(f"measuring batch {number + 1} of {batches}")
            step.capture.close()
            step = self._next_step(given)
        return step

    def _next_step(self, batches: Iterator[object]) -> WatchedStep:
        with said_after(self.made):
            batch = next(batches)
            # The first batch is that of the target itself.
            if self._read:
                self.target = self._first.at(self._read, batch)
            self._read += 1
            return self._measured(self._stepper.make(self.target))

    def _measured(self, step: WatchedStep) -> WatchedStep:
        if self._clipping is not None:
            self._clipping.measure(made=self.made, loss=step.ending.loss)
        return step

    def _skip_reason(self) -> str | None:
        """Return why the optimizer cannot make a step, None if it can.

        Raises:
            GradscopeError: The user chose the optimizer, and another one could make a step.
        """
        reason = self._probe.skip_reason
        if reason is not None and self._probe.is_users:
            raise GradscopeError(
                "gradscope cannot make steps with the target's optimizer",
                cause=reason,
                help="use another one, for example: --optimizer adamw",
            )
        return reason

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
    """Add the number of optimizer steps made to errors of the user's code."""
    try:
        yield
    except StepFailedError:
        raise
    except GradscopeError as error:
        if not steps:
            raise
        # Not `from error`, whose message would be shown a second time.
        raise after_steps(steps, error) from error.__cause__


def after_steps(steps: int, error: GradscopeError) -> GradscopeError:
    """Return an error that states after how many optimizer steps it occurred."""
    kind = UserCodeError if isinstance(error, UserCodeError) else GradscopeError
    plural = "s" if steps > 1 else ""
    told = kind(
        f"after {steps} optimizer step{plural}: {error.what}", cause=error.cause, help=error.help
    )
    # The user's own exception is shown below the message.
    told.__cause__ = error.__cause__
    return told
