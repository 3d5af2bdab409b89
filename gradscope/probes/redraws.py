"""Whether chance left parameters without a gradient: forwards with other random numbers.

Layers that are skipped at random, paths that are sampled, losses of a part of the output and
dropout leave parameters out of one step that learn in the next. What a file is run for has the same
random numbers in every step, so that its steps alone do not tell.
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
"""Of the first draw; the next ones count on from it."""

_FEWEST, _MOST = 4, 32
"""Draws: with 32 of them a path that one forward in ten takes is missed three times in a
hundred."""

_NODES, _ELEMENTS = 20_000, 20_000_000
"""All draws together may make so many operations, and gradients of so many elements."""


def probe_redraws(context: ProbeContext) -> str | None:
    """Note the parameters to which gradients come under other random numbers."""
    missing = _without_gradient(context)
    if not missing:
        return None
    if context.opaque or not context.reruns:
        return "the forward is not run again"
    before = RandomStates.now()
    try:
        record = _redrawn(context, missing)
    except GradscopeError as error:
        return f"the forward raised when it was run again: {error.what}"
    except RuntimeError as error:  # as under a reentrant checkpoint
        return f"backward raised when it was run again: {str(error).splitlines()[0]}"
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
    """Return the parameters that got no gradient, or one of zeros."""
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
    """Return which parameters get a gradient under a seed, None where nothing is random."""
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

    Generators of a model's own are not asked: they go on from step to step, so that steps tell.
    """
    after = RandomStates.now()
    seed_everything(seed)
    return not RandomStates.now().equal(after)


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
