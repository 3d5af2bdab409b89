"""What is known of the optimizers, and of what they hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gradscope.recording.evidence.batches import ProbeName
from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.rules.context import RuleContext

PROBE: ProbeName = "optimizers"
NO_OPTIMIZER = "the target has no optimizer"
NO_STEPPER = "no optimizer steps with what was watched closely"
"""Reason to skip a rule for a run, where optimizers may step with gradients of other passes."""


@dataclass(frozen=True)
class Optimizers:
    """The optimizers of a recording."""

    context: RuleContext

    @cached_property
    def records(self) -> tuple[OptimizerRecord, ...]:
        """Records of all known optimizers."""
        return self.context.recording.evidence_of(OptimizerRecord)

    @cached_property
    def holders(self) -> tuple[OptimizerRecord, ...]:
        """Optimizers that hold a parameter of the model, the target's own first."""
        return tuple(record for record in self.records if record.parameters)

    @cached_property
    def targets(self) -> OptimizerRecord | None:
        """Optimizer that makes the target's steps."""
        return next((record for record in self.records if record.is_targets), None)

    @cached_property
    def held(self) -> frozenset[int]:
        """Parameters that any optimizer holds; in a training run, at any time."""
        at_any_time = frozenset[int]() if self.context.run is None else self.context.run.held
        return at_any_time.union(*(record.parameters for record in self.holders))

    def skip_reason(self) -> str | None:
        """Return why nothing is known of the target's own optimizer."""
        if self.context.probe_skip_reason(PROBE) is not None:
            return self.context.probe_skip_reason(PROBE)
        return self.missing if self.targets is None else None

    @property
    def missing(self) -> str:
        """Reason to skip a rule if there is no optimizer."""
        return NO_OPTIMIZER if self.context.run is None else NO_STEPPER

    @property
    def without_update(self) -> str:
        """Reason to skip a rule if updates were not measured."""
        if self.context.run is None:
            return "the optimizer made no step"
        return "how far the steps moved the weights was not measured"


def positions(context: RuleContext, parameters: Iterable[int]) -> tuple[str, ...]:
    """Return the largest modules all of whose parameters are among these, else their names."""
    wanted = frozenset(parameters)
    records = context.recording.parameters
    found = []
    for index in sorted(wanted):
        path: str | None = context.owner(index)
        whole: str | None = None
        while path is not None and _below(context, path) <= wanted:
            whole = path
            path = path.rpartition(".")[0] if path else None
        found.append(records[index].name if whole is None else whole or "the whole model")
    return tuple(dict.fromkeys(found))


def _below(context: RuleContext, path: str) -> frozenset[int]:
    prefix = f"{path}." if path else ""
    return frozenset(
        record.index for record in context.recording.parameters if record.name.startswith(prefix)
    )
