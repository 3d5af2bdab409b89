"""Makes a few optimizer steps on a model that is restored afterwards.

They tell lasting problems from those of the first step: whether a gradient still explodes, whether
a branch initialized to zero opens.
"""

import math
from functools import cached_property

import torch
from torch import Tensor, nn

from gradscope.capture.compiler import watchable
from gradscope.capture.reading import why_unreadable
from gradscope.capture.statistics import norms
from gradscope.errors import GradscopeError, UserCodeError
from gradscope.phrasing import literal, short
from gradscope.probes.context import ProbeContext
from gradscope.probes.snapshot import preserved
from gradscope.progress import tell_stage
from gradscope.recording.evidence.training import OverfitRecord
from gradscope.target.optimizers import DEFAULT_LEARNING_RATE, closure_reason

LEARNED = 0.01
"""Share of the first loss at which the batch counts as learned."""

DIVERGED = 1e3
"""Multiple of the first loss at which the training is given up."""


class OptimizerProbe:
    """Makes optimizer steps with the current gradients of the parameters.

    Args:
        parameters: The model's parameters, with the gradients of the first step.
        optimizer: The user's optimizer; None for Adam.
    """

    def __init__(
        self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer | None
    ) -> None:
        self._parameters = parameters
        self._given = optimizer
        self.is_users = optimizer is not None

    @cached_property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        # Made on demand: the first optimizer of a process imports torch's compiler, which takes a
        # second.
        return _adam(self._parameters) if self._given is None else [self._given]

    @property
    def description(self) -> str:
        """The optimizer and its learning rates, as `AdamW(lr=0.001)`."""
        return " and ".join(describe_optimizer(optimizer) for optimizer in self._optimizers)

    @property
    def skip_reason(self) -> str | None:
        """Why the current gradients do not allow a step; None if they do."""
        for optimizer in self._optimizers:
            reason = closure_reason(type(optimizer))
            if reason is not None:
                return reason
        return None if self._optimizers else "no parameter that Adam supports has a gradient"

    def step(self) -> list[float | None]:
        """Make one step, and return the norm of each parameter's update.

        None stands for an unreadable parameter.

        Raises:
            UserCodeError: The optimizer raised.
        """
        # Copies, because an optimizer writes in place.
        before = [None if why_unreadable(p) else p.detach().clone() for p in self._parameters]
        self.move()
        return norms([_change(p, old) for p, old in zip(self._parameters, before, strict=True)])

    def move(self) -> None:
        """Make one step.

        Raises:
            UserCodeError: The optimizer raised.
        """
        for optimizer in self._optimizers:
            try:
                optimizer.step()
            # The optimizer may be the user's own, and raise anything.
            except Exception as error:
                raise UserCodeError(
                    f"{type(optimizer).__name__}.step raised an exception"
                ) from error


def _adam(parameters: list[nn.Parameter]) -> list[torch.optim.Optimizer]:
    """Return an Adam for dense gradients and one for sparse ones, as needed."""
    # torch's optimizers do not accept sparse parameters.
    plain = [p for p in parameters if p.is_leaf and p.layout is torch.strided]
    sparse = [p for p in plain if p.grad is not None and p.grad.is_sparse]
    dense = [p for p in plain if p.grad is not None and not p.grad.is_sparse]
    optimizers: list[torch.optim.Optimizer] = []
    if dense:
        optimizers.append(torch.optim.Adam(dense, lr=DEFAULT_LEARNING_RATE))
    if sparse:
        optimizers.append(torch.optim.SparseAdam(sparse, lr=DEFAULT_LEARNING_RATE))
    return optimizers


def describe_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """Return an optimizer's class and learning rates, as `AdamW(lr=0.001)`."""
    rates = dict.fromkeys(
        literal(float(group["lr"]))
        for group in optimizer.param_groups
        if group.get("lr") is not None  # if the optimizer chooses it itself
    )
    return (
        f"{type(optimizer).__name__}(lr={', '.join(rates)})" if rates else type(optimizer).__name__
    )


def _change(parameter: Tensor, before: Tensor | None) -> Tensor | None:
    if before is None or why_unreadable(parameter):
        return None
    # In float64, the difference of two close weights is exact.
    wide = torch.complex128 if parameter.is_complex() else torch.float64
    return (parameter.detach().to(wide) - before.to(wide)).to(
        parameter.dtype
        if parameter.is_complex() or parameter.dtype is torch.float64
        else torch.float32
    )


def probe_overfit(context: ProbeContext) -> str | None:
    """Record the losses of a training on the batch, with the target's optimizer or Adam."""
    if context.overfit is None:
        return "only --overfit trains on the batch"
    if not context.reruns:
        return "the forward may run only once"
    if context.loss is None:
        return "the target has no scalar loss"
    target = context.target
    probe = OptimizerProbe(context.named.parameters, target.optimizer)
    reason = probe.skip_reason
    if reason is not None:
        return reason
    with preserved(target.model, target.optimizer, target.batch, target.forward):
        before = [_values(one) for one in context.named.parameters]
        try:
            losses = _train(context, probe, context.overfit)
        except GradscopeError as error:
            return f"the training on one batch failed: {error.what}"
        moved = _moved(context.named.parameters, before)
    context.assembler.note(
        OverfitRecord(
            wanted=context.overfit,
            learned=LEARNED,
            optimizer=probe.description,
            losses=tuple(losses),
            moved=tuple(moved),
        )
    )
    return None


def _train(context: ProbeContext, probe: OptimizerProbe, steps: int) -> list[float]:
    """Make the steps, and return the loss before each and after the last."""
    losses: list[float] = []
    with torch.inference_mode(False), torch.enable_grad(), watchable():
        while True:
            for parameter in context.named.parameters:
                parameter.grad = None
            loss = context.target.forward().loss
            losses.append(float(loss.detach()))
            tell_stage(
                f"training on one batch: step {len(losses)} of {steps}, loss {short(losses[-1])}"
            )
            if len(losses) > steps or _is_over(losses):
                return losses
            loss.backward()
            _clip(context)
            probe.move()


def _is_over(losses: list[float]) -> bool:
    first, last = losses[0], losses[-1]
    if not math.isfinite(last) or abs(last) > DIVERGED * max(abs(first), 1.0):
        return True
    # A loss that may be negative, such as a likelihood, has no share of the first one.
    return 0 <= last <= LEARNED * first


def _clip(context: ProbeContext) -> None:
    limit = context.target.clip_grad_norm
    if limit is not None:
        nn.utils.clip_grad_norm_(context.named.parameters, limit)


def _values(parameter: nn.Parameter) -> Tensor | None:
    if not parameter.requires_grad or why_unreadable(parameter):
        return None
    return parameter.detach().clone()


def _moved(parameters: list[nn.Parameter], before: list[Tensor | None]) -> list[float | None]:
    """Return the distance of each parameter from its old values, over their norm."""
    changes = [
        None if old is None or why_unreadable(new) else new.detach() - old
        for new, old in zip(parameters, before, strict=True)
    ]
    return [
        None if distance is None or size is None else _ratio(distance, size)
        for distance, size in zip(norms(changes), norms(before), strict=True)
    ]


def _ratio(distance: float, size: float) -> float:
    if size == 0.0:  # a bias that begins at zero
        return math.inf if distance > 0.0 else 0.0
    return distance / size
