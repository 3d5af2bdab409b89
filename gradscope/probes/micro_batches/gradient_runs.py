"""Runs forward and backward on any batch, keeps the gradients, and restores everything else."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import Node

from gradscope.capture.compiler import watchable
from gradscope.capture.step.graph import walk
from gradscope.capture.step.teardown import release
from gradscope.errors import GradscopeError
from gradscope.probes.context import ProbeContext
from gradscope.probes.snapshot import RandomStates, preserved
from gradscope.target.forward import seed_everything
from gradscope.target.target import Outcome
from gradscope.target.user_code import UserCode

_LOW = (torch.float16, torch.bfloat16)
_MEAN = 1
"""The mean reduction in a comparison's node."""

Dims = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """Facts about a forward's graph that remain known after it is freed."""

    operations: tuple[str, ...]
    """Operations in the order of a walk from the loss."""
    shapes: tuple[Dims, ...]
    """Shapes of the outputs, by operation."""
    totals: tuple[float, ...]
    """Divisors of cross-entropy means: the targets not ignored, weighted by class."""
    is_low: bool
    """Whether any of it is in half precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRun:
    """Result of a forward and backward."""

    loss: float
    gradients: tuple[Tensor | None, ...]
    """`.grad` of each parameter."""
    graph: GraphFacts
    drew_in_python: bool
    """Whether `random` or numpy drew numbers."""


def run_gradients(
    context: ProbeContext,
    batch: object,
    draws: AbstractContextManager[None],
    *,
    still: tuple[torch.nn.Module, ...] = (),
) -> GradientRun:
    """Run forward and backward with the current weights, and restore everything.

    Args:
        context: A model right after the backward of the judged step.
        batch: The batch to run.
        draws: Context manager around forward and backward.
        still: Modules that run in eval mode.

    Raises:
        GradscopeError: Forward or backward raised, or backward does not start from a loss.
    """
    target = context.target
    forward = target.forward.at(batch, target.seed)
    with (
        preserved(target.model, None, batch, target.batch, target.forward),
        context.as_at_first(),
        torch.inference_mode(False),
        torch.enable_grad(),
        watchable(),
    ):
        for module in still:
            module.eval()
        for parameter in context.named.parameters:
            parameter.grad = None
        if target.seed is not None:
            seed_everything(target.seed)
        before = RandomStates.now()
        with draws:
            outcome = forward()
            seen = _seen(outcome)
            with UserCode("backward failed"):
                torch.autograd.backward(outcome.loss)
        after = RandomStates.now()
        of_torch = {"torch_state": before.torch_state, "devices": before.devices}
        return GradientRun(
            loss=float(outcome.loss.detach()),
            gradients=tuple(parameter.grad for parameter in context.named.parameters),
            graph=seen,
            drew_in_python=not replace(after, **of_torch).equal(before),  # type: ignore[arg-type]
        )


def _seen(outcome: Outcome) -> GraphFacts:
    """Return facts about the graph of a forward while its saved tensors exist.

    Raises:
        GradscopeError: Backward does not start from a loss.
    """
    if outcome.grad_output is not None or outcome.loss.numel() != 1:
        raise GradscopeError("backward starts from a vector, not from a loss")
    graph = walk(outcome.loss)
    facts = GraphFacts(
        operations=tuple(graph.operations),
        shapes=tuple(map(_shapes, graph.nodes)),
        totals=tuple(total for node in graph.nodes for total in _totals(node)),
        is_low=any(
            metadata.dtype in _LOW for node in graph.nodes for metadata in node._input_metadata
        ),
    )
    graph.index.clear()
    graph.leaves.clear()
    release(graph.nodes)
    return facts


def _shapes(node: Node) -> Dims:
    return tuple(
        () if metadata.is_nested_tensor else tuple(metadata.shape)
        for metadata in node._input_metadata
    )


def _totals(node: Node) -> list[float]:
    """Return the divisor of a cross-entropy."""
    if getattr(node, "_saved_reduction", None) != _MEAN:
        return []
    total = getattr(node, "_saved_total_weight", None)
    return [float(total)] if isinstance(total, Tensor) and total.numel() == 1 else []
