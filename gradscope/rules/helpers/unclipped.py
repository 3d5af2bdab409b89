"""The norms of a run's gradients as they were before clips."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from gradscope.analysis.clipping.arithmetic import coefficient
from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.recording.events import BackwardEvent, ClipValueEvent, ZeroEvent
from gradscope.rules.context import RuleContext


@dataclass(frozen=True)
class UnclippedNorms:
    """What gradients were before the clips of a run, as far as the clips tell.

    A clip by value is taken for one by the norm: of all its parameters together that is exact.
    """

    context: RuleContext

    def before(self, step: int, norms: Mapping[int, float]) -> dict[int, float]:
        """Return norms as they were before the clips of a step.

        Args:
            step: The step.
            norms: By parameter, as the step found them.
        """
        factors = self._factors.get(step, {})
        return {index: norm / factors.get(index, 1.0) for index, norm in norms.items()}

    @cached_property
    def _factors(self) -> Mapping[int, Mapping[int, float]]:
        """By step and parameter: what clips have multiplied a gradient by."""
        found: dict[int, dict[int, float]] = {}
        for clip in self.context.shared(Clips).all:
            factor = _factor(clip)
            if factor is None or clip.parameters is None:
                continue
            for step in clip.steps:
                factors = found.setdefault(step.step, {})
                for index in clip.parameters:
                    factors[index] = factors.get(index, 1.0) * factor
        return found


def _factor(clip: Clip) -> float | None:
    """Return what the step that follows finds of a norm; None where all of it, or it is unknown."""
    before, limit = clip.norm_before, clip.limit
    if before is None or limit is None or not isfinite(before) or not clip.event.fresh:
        return None
    if any(isinstance(event, BackwardEvent | ZeroEvent) for event in clip.later):
        return None
    if isinstance(clip.event, ClipValueEvent):
        after = clip.event.norm_after
        factor = after / before if after is not None and before else 1.0
    else:
        factor = 1.0 if clip.only_measures else coefficient(limit, before)
    return factor if 0 < factor < 1 else None
