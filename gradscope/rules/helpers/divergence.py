"""Whether training on the way to the judged step has diverged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from gradscope.recording.records import StepRecord
from gradscope.rules.context import RuleContext

_RISE = 10.0
"""Times its first value to which a loss does not rise while training goes well."""


@dataclass(frozen=True)
class Divergence:
    """The losses and the weights of the training steps, and of the judged one after them."""

    context: RuleContext

    @cached_property
    def steps(self) -> tuple[StepRecord, ...]:
        """The steps, the judged one last; empty where nothing was trained."""
        judged = self.context.first.step
        way = [step for step in self.context.recording.steps if step.kind == "training"]
        return (*way, judged) if way and judged is not None else ()

    @cached_property
    def growths(self) -> tuple[float, ...]:
        """By optimizer step: by what share of itself the norm of a typical weight matrix grew.

        The update is at least as large: norms differ by no more than what lies between them.
        """
        by_step = self._norms()
        norms = [by_step[step.index] for step in self.steps]
        return tuple(
            median([_growth(before[index], after.get(index, 0.0)) for index in before] or [0.0])
            for before, after in pairwise(norms)
        )

    @property
    def loss_rose(self) -> bool:
        """Whether the loss has risen manyfold, or is no number any more."""
        return rises([step.loss for step in self.steps if step.loss is not None])

    def step_beyond(self, limit: float) -> int | None:
        """Return the first optimizer step that moved the weights by more than a share of them.

        Args:
            limit: The share.

        Returns:
            Its number, from 0; None where there is none, or where the loss did not rise.
        """
        if not self.loss_rose:
            return None
        return next((step for step, growth in enumerate(self.growths) if growth >= limit), None)

    @property
    def loss_words(self) -> str:
        """From where to where the loss went, and in how many steps."""
        losses = [step.loss for step in self.steps if step.loss is not None]
        count = len(self.steps) - 1
        plural = "" if count == 1 else "s"
        return f"the loss goes from {losses[0]:.4g} to {losses[-1]:.4g} in {count} step{plural}"

    def _norms(self) -> dict[int, dict[int, float]]:
        """Return by step the norms of the weight matrices that are not zero, as it found them."""
        parameters = self.context.recording.parameters
        found: dict[int, dict[int, float]] = {step.index: {} for step in self.steps}
        for stat in self.context.recording.parameter_stats:
            parameter = parameters[stat.parameter]
            is_trained_matrix = len(parameter.shape.dims) > 1 and parameter.requires_grad
            if stat.step in found and stat.weight_norm and is_trained_matrix:
                found[stat.step][stat.parameter] = stat.weight_norm
        return found


def rises(losses: Sequence[float]) -> bool:
    """Return whether losses rise manyfold above the first, or are no numbers any more."""
    first, *later = losses or [0.0]
    limit = _RISE * max(abs(first), 1e-6)
    return math.isfinite(first) and any(
        not math.isfinite(loss) or abs(loss) > limit for loss in later
    )


def _growth(before: float, after: float) -> float:
    return (after - before) / before if math.isfinite(after) else math.inf
