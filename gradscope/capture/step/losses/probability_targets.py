"""Observes cross-entropies whose targets are shares of the classes that do not add up to 1."""

from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line

_CROSS_ENTROPY = "cross_entropy"
_TOLERANCE = 0.05
"""Distance of a sum from 1 that counts as rounding, as of targets in bfloat16."""
_MOST = 100
"""Maximum number of calls that are kept."""
_MOST_ELEMENTS = 2**24


class ProbabilityTargets(NamedTuple):
    """Targets of a cross-entropy that are no probabilities."""

    line: Line
    examples: int
    several: int
    """Number of examples with two classes or more, whose shares add up to more than 1."""
    largest: float
    """Largest sum of an example."""
    least: float
    """Smallest share."""
    are_binary: bool
    """Whether all shares are 0 or 1."""


class ProbabilityTargetObserver(Observer):
    """Adds up the shares of each example."""

    names = frozenset({_CROSS_ENTROPY})

    def __init__(self) -> None:
        self.found: list[ProbabilityTargets] = []

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether the targets are shares: numbers of the same shape as the logits."""
        return len(self.found) < _MOST and _targets(args, kwargs) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call whose shares are negative or add up to more than 1."""
        targets = _targets(args, kwargs)
        if targets is None or line is None or not has_numbers(targets):
            return
        shares = targets.detach().double()
        sums = shares.sum(min(1, shares.ndim - 1)).flatten()
        classes = (shares != 0).sum(min(1, shares.ndim - 1)).flatten()
        several = int(((sums > 1 + _TOLERANCE) & (classes > 1)).sum())
        least = float(shares.min())
        if several or least < 0:
            are_binary = bool(((shares == 0) | (shares == 1)).all())
            self.found.append(
                ProbabilityTargets(
                    line, sums.numel(), several, float(sums.max()), least, are_binary
                )
            )

    def close(self) -> None:
        """Forget everything."""
        self.found.clear()


def _targets(args: Args, kwargs: Kwargs) -> Tensor | None:
    given = kwargs or {}
    logits = args[0] if args else given.get("input")
    targets = args[1] if len(args) > 1 else given.get("target")
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor):
        return None
    is_share = torch.is_floating_point(targets) and not targets.is_nested and targets.ndim > 0
    if not is_share or logits.shape != targets.shape or targets.requires_grad:
        return None
    return targets if 0 < targets.numel() <= _MOST_ELEMENTS and logits.requires_grad else None
