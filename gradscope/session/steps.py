"""Runs and records one forward and backward of a target."""

import math
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
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
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.step.measurements import Measurements
from gradscope.capture.step.sites import SiteMode
from gradscope.errors import GradscopeError
from gradscope.probes.snapshot import RandomStates
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
        for tensor in (*self._named.parameters, *self._others):
            tensor.grad = None
        random_states = RandomStates.now()
        capture = StepCapture(self._named.parameters, opaque=self._opaque)
        with torch.inference_mode(False), torch.enable_grad():
            outcome = self._forward(target, capture)
            capture.trace(outcome.loss)
            for leaf in capture.other_leaves():
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
