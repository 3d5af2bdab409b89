"""Checks whether chance left parameters without a gradient, with other random numbers.

Randomly skipped layers, sampled paths, partial losses and dropout can exclude parameters from one
step that learn in the next. An inspected file has the same random numbers in every step, so its own
steps do not show that.
"""

import torch
from torch import Tensor

from gradscope.capture.compiler import watchable
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.snapshot import RandomStates
from gradscope.recording.evidence.parameters import RedrawRecord
from gradscope.target.forward import seed_everything

_SEED = 0x5EED
"""Seed of the first draw; further ones count up from it."""

_FEWEST, _MOST = 4, 32
"""Number of draws: with 32, a path taken by one forward in ten is missed in 3 % of cases."""

_NODES, _ELEMENTS = 20_000, 20_000_000
"""Maximum number of operations, and of gradient elements, of all draws together."""


def probe_redraws(context: ProbeContext) -> str | None:
    """Record the parameters that get a gradient with other random numbers."""
    missing = _without_gradient(context)
    if not missing:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not repeated"
    before = RandomStates.now()
    try:
        record = _redrawn(context, missing)
    except GradscopeError as error:
        return f"the forward raised when it was repeated: {error.what}"
    except RuntimeError as error:  # for example under a reentrant checkpoint
        return f"backward raised when it was repeated: {str(error).splitlines()[0]}"
    finally:
        before.restore()
    if record.parameters:
        context.assembler.note(record)
    return None


def _redrawn(context: ProbeContext, missing: set[int]) -> RedrawRecord:
    found, draws = set[int](), 0
    while found < missing and draws < _affordable(context):
        reached = _reached(context, _SEED + draws, sorted(missing - found))
        if reached is None:
            break
        found |= reached
        draws += 1
    return RedrawRecord(draws=draws, parameters=tuple(sorted(found)))


def _without_gradient(context: ProbeContext) -> set[int]:
    """Return the parameters without a gradient, or with one of zeros."""
    return {
        position
        for position, parameter in enumerate(context.named.parameters)
        if parameter.requires_grad
        and (
            position not in context.measured.reached
            or ((left := context.measured.parameter(position)) is not None and left.norm == 0)
        )
    }


def _affordable(context: ProbeContext) -> int:
    elements = sum(parameter.numel() for parameter in context.named.parameters)
    nodes = len(context.capture.graph.nodes)
    fitting = min(_NODES // max(nodes, 1), _ELEMENTS // max(elements, 1))
    return min(max(fitting, _FEWEST), _MOST)


def _reached(context: ProbeContext, seed: int, missing: list[int]) -> set[int] | None:
    """Return the parameters that get a gradient with a seed, None if nothing is random."""
    parameters = [context.named.parameters[position] for position in missing]
    forward = context.target.forward.at(context.target.batch, seed)
    with torch.inference_mode(False), torch.enable_grad(), watchable():
        outcome = forward()
        if not _has_drawn(seed):
            return None
        gradients = torch.autograd.grad(
            outcome.loss, parameters, outcome.grad_output, allow_unused=True
        )
    return {
        position
        for position, gradient in zip(missing, gradients, strict=True)
        if gradient is not None and bool(_values(gradient).any())
    }


def _has_drawn(seed: int) -> bool:
    """Return whether random numbers were drawn since a seed was set.

    A model's own generators are ignored: they continue from step to step, so that further steps
    show the effect.
    """
    after = RandomStates.now()
    seed_everything(seed)
    return not RandomStates.now().equal(after)


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
