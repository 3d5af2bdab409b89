"""Runs a batch whole and in parts, and finds how the parts' gradients add up."""

import math
from dataclasses import dataclass, replace

from torch import Tensor, nn

from gradscope.probes.context import ProbeContext
from gradscope.probes.micro_batches.accumulation_laws import (
    FULL_TOLERANCE,
    LOW_TOLERANCE,
    Count,
    Law,
    find_law,
)
from gradscope.probes.micro_batches.batch_division import Division
from gradscope.probes.micro_batches.equal_draws import EqualDraws, Part
from gradscope.probes.micro_batches.gradient_runs import GradientRun, run_gradients
from gradscope.probes.micro_batches.gradient_sums import GradientSums, Products
from gradscope.target.structures import named_tensors

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
