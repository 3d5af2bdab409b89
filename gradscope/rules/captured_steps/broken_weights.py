"""The steps of a run before a backward whose weights are not finite."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from gradscope.analysis.surroundings import StepBefore
from gradscope.recording.events import Event, StepEvent, only
from gradscope.recording.evidence.failures import NonfiniteRecord
from gradscope.recording.evidence.training import OptimizerRecord, TrainedOptimizer
from gradscope.recording.norm_table import NOT_MEASURED, norms_of
from gradscope.recording.records import CapturedStep
from gradscope.rules.context import RuleContext

_RECENT = 400
"""Number of events before a backward that are searched for the last steps."""
_FAR_BELOW = 1e30
"""Size of an update that cannot make a sum with finite weights overflow float32."""
_WIDE = frozenset({"bfloat16", "float32", "float64"})
_MOMENTUM = 1e4
"""Factor by which momentum may enlarge a step: it is below 0.9999."""
_BOUNDED = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "SGD"})
"""Optimizers of torch with a bound of their update by the gradient's norm."""


@dataclass(frozen=True)
class BrokenWeights:
    """What the last steps before a backward did to the weights that it found broken."""

    context: RuleContext
    optimizers: Sequence[TrainedOptimizer]
    captured: CapturedStep

    def steps_before(self, events: Sequence[Event]) -> Iterator[StepBefore]:
        """Yield the last step of each optimizer.

        Args:
            events: The events before the backward.
        """
        records = self.captured.recording.evidence_of(NonfiniteRecord)
        broken = {one.name for one in records if one.source == "parameter"}
        known: set[int] = set()
        # Each optimizer in use has made a step recently.
        for event in only(StepEvent, reversed(events[-_RECENT:] if broken else ())):
            if event.kind != "step" or event.optimizer is None or event.optimizer in known:
                continue
            known.add(event.optimizer)
            parameters = self.context.recording.parameters
            held = [
                position
                for position in self.optimizers[event.optimizer].parameters
                if parameters[position].name in broken and self._was_sound(position, event.step)
            ]
            left_sound = [position for position in held if self._left_sound(position, event)]
            yield StepBefore(
                step=event.step,
                site=self.context.site(event.site),
                rate=event.lr,
                parameters=frozenset(
                    parameters[position].name for position in held if position not in left_sound
                ),
                left_sound=frozenset(parameters[position].name for position in left_sound),
            )

    def _was_sound(self, parameter: int, step: int) -> bool:
        """Return whether the weights that were measured last, up to a step, were finite."""
        norms = norms_of(self.context.recording)
        rows = zip(norms.parameters, norms.steps, norms.weights, strict=True)
        known = [
            norm
            for position, at, norm in rows
            if position == parameter and at <= step and norm != NOT_MEASURED
        ]
        # Rows ascend by step: the last one is the latest measurement.
        return bool(known) and isfinite(known[-1])

    def _left_sound(self, parameter: int, event: StepEvent) -> bool:
        """Return whether a step certainly left finite weights.

        Either its update was measured, or the largest update that its gradients allow is small.
        """
        norms = norms_of(self.context.recording)
        for row in norms.rows_of(event.step):
            if norms.parameters[row] == parameter and norms.updates[row] != NOT_MEASURED:
                return isfinite(norms.updates[row])
        record = self.optimizers[event.optimizer or 0]
        dtype = self.context.recording.parameters[parameter].shape.dtype
        rate, norm = event.lr, event.norm
        if record.class_name not in _BOUNDED or dtype not in _WIDE or event.nonfinite:
            return False
        if rate is None or norm is None or not isfinite(norm) or not self._divides_safely:
            return False
        # Adam moves by about the rate, however small the gradient is, and keeps squares of it,
        # which overflow first.
        return rate * _MOMENTUM * max(norm, 1.0) < _FAR_BELOW and norm**2 < _FAR_BELOW

    @property
    def _divides_safely(self) -> bool:
        """Return whether no optimizer divides by a root without a number added to it."""
        groups = (
            group
            for record in self.captured.recording.evidence_of(OptimizerRecord)
            for group in record.groups
        )
        return all(group.epsilon is None or group.epsilon > 1 / _FAR_BELOW for group in groups)
