"""Runs a batch whole and in parts, and finds how the parts' gradients add up."""

import math
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from gradscope.capture.step.graph import release, walk
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.context import ProbeContext
from gradscope.probes.micro_batches.batch_division import Division
from gradscope.probes.micro_batches.equal_draws import EqualDraws, Part
from gradscope.probes.micro_batches.gradient_sums import (
    FULL_TOLERANCE,
    LOW_TOLERANCE,
    Count,
    GradientSums,
    Law,
    Products,
    find_law,
)
from gradscope.probes.snapshot import RandomStates, preserved
from gradscope.target.forward import seed_everything
from gradscope.target.structures import named_tensors
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
        context.watched_as_at_first(),
    ):
        for module in still:
            module.eval()
        for parameter in context.named.parameters:
            # None instead of zeros, so that an unreached parameter stays distinguishable.
            parameter.grad = None
        if target.seed is not None:
            seed_everything(target.seed)
        before = RandomStates.now()
        with draws:
            outcome = forward()
            # Before backward, which frees the saved tensors.
            seen = _facts_of(outcome)
            with UserCode("backward failed"):
                torch.autograd.backward(outcome.loss)
        after = RandomStates.now()
        of_torch = {"torch_state": before.torch_state, "devices": before.devices}
        return GradientRun(
            loss=float(outcome.loss.detach()),
            gradients=tuple(parameter.grad for parameter in context.named.parameters),
            graph=seen,
            # Parts can share the draws of torch alone.
            drew_in_python=not replace(after, **of_torch).equal(before),  # type: ignore[arg-type]
        )


def _facts_of(outcome: Outcome) -> GraphFacts:
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
    # The index first: nodes that it holds would not be freed piece by piece.
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
    # torch saves this divisor for its own backward, ignored targets and class weights included.
    total = getattr(node, "_saved_total_weight", None)
    return [float(total)] if isinstance(total, Tensor) and total.numel() == 1 else []


_IGNORED = -100
"""The default `ignore_index` of torch's losses."""

_TARGETS = "targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTrial:
    """The runs of the whole batch and of its parts."""

    division: Division
    whole: GradientRun
    parts: tuple[GradientRun, ...]
    """Runs of the parts, without gradients."""
    finite: tuple[bool, ...]
    """Whether loss and gradients of each part are finite."""
    sums: GradientSums
    products: dict[int, Products]
    """Products by parameter."""
    total: Products
    law: Law
    draws: int
    unmatched: int

    @property
    def count(self) -> Count | None:
        """Return the count that gives the weights, or of which a non-finite part has none."""
        if self.law.count is not None:
            return self.law.count
        totals = zip(*(part.graph.totals for part in self.parts), strict=False)
        return next(
            (Count(_TARGETS, amounts) for amounts in totals if self._explains(amounts)), None
        )

    @property
    def excess(self) -> Tensor:
        """Return the excess of a sample of the sum, by part except the first."""
        parts, whole = self.sums.sample()
        return (parts.sum(dim=0) - whole) / (len(parts) - 1)

    def _explains(self, amounts: tuple[float, ...]) -> bool:
        pairs = zip(amounts, self.finite, strict=True)
        return any(amount == 0 and not finite for amount, finite in pairs)


def run_micro_batches(
    context: ProbeContext, division: Division, still: tuple[nn.Module, ...] = ()
) -> MicroBatchTrial:
    """Run the whole batch and its parts.

    Args:
        context: A model right after the backward of the judged step.
        division: The batch split into parts.
        still: Modules that run in eval mode.

    Raises:
        GradscopeError: One of them cannot be run.
    """
    draws = EqualDraws()
    whole = run_gradients(context, context.target.batch, draws.kept(), still=still)
    sums = GradientSums(whole.gradients)
    parts, finite = list[GradientRun](), list[bool]()
    start = 0
    for batch, size in zip(division.parts, division.sizes, strict=True):
        given = draws.given(Part(start, size, division.rows))
        run = run_gradients(context, batch, given, still=still)
        is_finite = sums.add(run.gradients)
        finite.append(is_finite and math.isfinite(run.loss))
        # The gradients of one part are freed before the next: all together need K times the memory.
        parts.append(replace(run, gradients=()))
        start += size
    products = sums.products()
    return MicroBatchTrial(
        division=division,
        whole=whole,
        parts=tuple(parts),
        finite=tuple(finite),
        sums=sums,
        products=products,
        total=sum(products.values(), Products(0.0, 0.0, 0.0)),
        law=_law(sums, division, whole, parts) if all(finite) else _unknown(len(parts)),
        draws=draws.count,
        unmatched=draws.unmatched + whole.drew_in_python,
    )


def _law(
    sums: GradientSums, division: Division, whole: GradientRun, parts: list[GradientRun]
) -> Law:
    of_parts, of_whole = sums.sample()
    if not of_whole.any() or not of_whole.isfinite().all():
        return _unknown(len(parts))
    return find_law(
        of_parts,
        of_whole,
        _counts(division, [part.graph.totals for part in parts]),
        ([part.loss for part in parts], whole.loss),
        LOW_TOLERANCE if whole.graph.is_low else FULL_TOLERANCE,
    )


def _unknown(parts: int) -> Law:
    return Law(name="none", weights=(math.nan,) * parts, remaining=math.nan)


def _counts(division: Division, totals: list[tuple[float, ...]]) -> list[Count]:
    """Return the possible units of the loss's mean."""
    counts = [Count("rows", tuple(float(size) for size in division.sizes))]
    # Parts that computed other losses cannot be paired.
    if len({len(total) for total in totals}) == 1:
        counts += [Count(_unit(amounts), amounts) for amounts in zip(*totals, strict=True)]
    # The same batch gives the same names and order in every part.
    named = [list(named_tensors(part, "batch")) for part in division.parts]
    for tensors in zip(*named, strict=True):
        name = tensors[0][0]
        values = [tensor.detach() for _, tensor in tensors]
        if not values[0].is_floating_point() and not values[0].is_complex():
            kept = tuple(float((value != _IGNORED).sum()) for value in values)
            counts.append(Count(f"elements of `{name}` that are not {_IGNORED}", kept))
        filled = tuple(float(value.count_nonzero()) for value in values)
        counts.append(Count(f"elements of `{name}` that are not 0", filled))
    return counts


def _unit(amounts: tuple[float, ...]) -> str:
    are_whole = all(amount.is_integer() for amount in amounts)
    return _TARGETS if are_whole else "the class weights of the targets"
