"""How far an optimizer step moves the weights."""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from statistics import median

from gradscope.recording.records import ParameterRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.optimizers import Optimizers


@dataclass(frozen=True)
class UpdateRatios:
    """The first step's norm over the weight's, of every weight matrix that gets a gradient.

    Left out are vectors, weights that are all zero, and embeddings, whose unused rows do not move.
    """

    context: RuleContext

    @cached_property
    def optimizers(self) -> Optimizers:
        """What is known of the optimizers."""
        return Optimizers(self.context)

    @cached_property
    def by_parameter(self) -> dict[int, float]:
        """The ratio of each weight matrix."""
        ratios = {}
        held = self.optimizers.targets.parameters if self.optimizers.targets else frozenset()
        for index in sorted(held):
            stat, record = (
                self.context.parameter_stat(index),
                self.context.recording.parameters[index],
            )
            if stat is None or stat.update_norm is None or not self._counts(record):
                continue
            weight = stat.weight_norm or 0.0
            if stat.gradient is not None and stat.gradient.norm > 0 and weight > 0:
                ratios[index] = stat.update_norm / weight
        return {index: ratio for index, ratio in ratios.items() if isfinite(ratio)}

    @property
    def typical(self) -> float:
        """The median over the matrices; their greatest is noisy."""
        return median(self.by_parameter.values())

    def skip_reason(self) -> str | None:
        """Return why there is no ratio."""
        skip_reason = self.optimizers.skip_reason()
        if skip_reason is not None:
            return skip_reason
        stats = self.context.first.parameter_stats.values()
        if all(stat.update_norm is None for stat in stats):
            return self.optimizers.without_update
        if self.learning_rates == {0.0}:
            return "the learning rate is 0 at this step, as at the start of a warm-up"
        return None if self.by_parameter else "no weight matrix gets a gradient"

    @cached_property
    def learning_rates(self) -> set[float]:
        """Learning rates of the parameter groups."""
        groups = () if self.optimizers.targets is None else self.optimizers.targets.groups
        return {g.learning_rate for g in groups if g.learning_rate is not None}

    @property
    def rates(self) -> str:
        """The learning rates for a message, as ` (lr 0.1)`; empty where the optimizer has none."""
        rates = ", ".join(f"{rate:g}" for rate in sorted(self.learning_rates))
        return f" (lr {rates})" if rates else ""

    def _counts(self, record: ParameterRecord) -> bool:
        if len(record.shape.dims) < 2 or not record.requires_grad:
            return False
        if self.context.recording.modules[record.module].class_name.startswith("Embedding"):
            return False
        node = self.context.parameter_nodes.get(record.index)
        users = () if node is None else self.context.consumers(node)
        return not any(user.operation.startswith("Embedding") for user in users)
