"""Trains on one batch, to see whether the model can learn it, and restores the model."""

import math

import torch
from torch import Tensor, nn

from gradscope.capture.compiler import watchable
from gradscope.capture.reading import why_unreadable
from gradscope.capture.statistics import norms
from gradscope.errors import GradscopeError
from gradscope.phrasing import short
from gradscope.probes.context import ProbeContext
from gradscope.probes.optimizer_steps import OptimizerProbe
from gradscope.probes.snapshot import preserved
from gradscope.progress import tell_stage
from gradscope.recording.evidence.training import OverfitRecord

LEARNED = 0.01
"""Share of the first loss at which the batch counts as learned."""

DIVERGED = 1e3
"""Multiple of the first loss at which the training is given up."""


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
