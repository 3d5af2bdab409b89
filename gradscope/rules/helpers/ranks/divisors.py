"""What divides or multiplies a loss or gradients by a number that concerns all ranks."""

import math
from collections.abc import Mapping
from typing import Final

from gradscope.analysis.ranks.job import Rank
from gradscope.recording.records import Site
from gradscope.rules.helpers.jobs import backward_site

SAME: Final = 1e-3
"""Relative difference of norms up to which a gradient counts as unchanged."""

LOSS: Final = "the loss is"
GRADIENTS: Final = "gradients are"


def divided_by(rank: Rank, values: Mapping[int, float], world_size: int) -> tuple[str, list[int]]:
    """Return what is divided by a number in its step, and in which steps.

    Args:
        rank: The rank.
        values: The number by step.
        world_size: Number of ranks. A smaller number is no count of tokens or rows.
    """
    counts = {step: one for step, one in values.items() if one > world_size}
    divisors: dict[int, list[float]] = {}
    for event in rank.backwards:
        divisors.setdefault(event.step, []).append(dict(event.numbers).get("divided", 1.0))
    ratios = {step: rank.scaling(step) for step in counts}
    losses = [
        step
        for step, value in counts.items()
        if divisors.get(step) and all(abs(one - value) <= SAME * value for one in divisors[step])
        # Some multiply the gradients instead of the loss.
        if abs((ratios[step] or 1) - world_size) > SAME * world_size
    ]
    if losses:
        return LOSS, losses
    return GRADIENTS, [
        step
        for step, ratio in ratios.items()
        if ratio is not None and abs(ratio * counts[step] - 1) <= SAME
    ]


def is_by_product(backward: Mapping[str, float], world_size: int) -> bool:
    """Return whether a sum is divided by a number of rows or tokens times the number of ranks."""
    divisor = backward.get("divided", 1.0)
    # The number of ranks alone would be a weight of the sum, not a mean over rows.
    is_multiple = divisor > world_size and divisor % world_size == 0
    return is_multiple and backward.get("multiplied", 1.0) == 1.0


def multiplied_means(rank: Rank, world_size: int) -> list[Mapping[str, float]]:
    """Return the passes whose loss is a mean over the rank's own rows, times the number of ranks.

    A sum is such a mean if it is divided by the tokens or rows of all passes of its step.
    """
    by_step: dict[int, list[Mapping[str, float]]] = {}
    for event in rank.backwards:
        by_step.setdefault(event.step, []).append(dict(event.numbers))
    found = []
    for passes in by_step.values():
        # An unknown count is NaN, which makes the sum NaN and equal to no divisor.
        own = {math.fsum(one.get(unit, math.nan) for one in passes) for unit in ("tokens", "rows")}
        for one in passes:
            multiplied = one.get("multiplied", 1.0)
            is_sum = one.get("reduction") == 0.0
            # `loss * world_size / tokens` is recorded as a division by `tokens / world_size`.
            is_own = is_sum and one.get("divided", 1.0) * multiplied in own
            if (one.get("reduction") == 1.0 or is_own) and abs(multiplied - world_size) <= SAME:
                found.append(one)
    return found


def is_multiplied(rank: Rank, world_size: int) -> bool:
    """Return whether gradients are multiplied by the number of ranks before the step."""
    ratios = (rank.scaling(step) for step in rank.steps("step"))
    return any(one is not None and abs(one / world_size - 1) <= SAME for one in ratios)


def changes(rank: Rank, what: str) -> list[Site]:
    """Return the lines that change gradients, if these are what is divided."""
    return rank.lines("written-gradient")[:2] if what == GRADIENTS else []


def of_loss(rank: Rank, kind: str) -> list[Site]:
    """Return the lines that divide or multiply a loss by the number of ranks, as written.

    Args:
        rank: The rank.
        kind: `divided-by-ranks` or `multiplied-by-ranks`.
    """
    # A division counts for the loss where it assigns to the variable that backward is called on, or
    # returns from a function that makes it.
    subjects = {event.subject.split(" ")[0] for event in rank.backwards}
    start = backward_site(rank)
    found = []
    for event in rank.events.get(kind, ()):
        site = rank.site(event.site)
        is_at_backward = site is not None and site == start
        if site is not None and (is_at_backward or event.subject in {"return", *subjects}):
            found.append(site)
    return found


def divides(divisor: float, world_size: int) -> bool:
    """Return whether a divisor is the number of ranks, or a whole multiple of it."""
    # NaN is no divisor, as of a loss that is multiplied by zero or NaN; it differs from itself.
    if world_size < 2 or divisor != divisor:
        return False
    ratio = divisor / world_size
    return ratio >= 1 and abs(ratio - round(ratio)) < 1e-6
