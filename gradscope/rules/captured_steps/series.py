"""The looks at one backward of the script, and which of them are worth judging."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gradscope.recording.evidence.failures import (
    AutogradErrorRecord,
    FlushRecord,
    LateCapture,
    NonfiniteRecord,
)
from gradscope.recording.evidence.forward import SaturationRecord, UnitRecord
from gradscope.recording.evidence.optimizers import OptimizerRecord
from gradscope.rules.captured_steps.composition import Sight, composed
from gradscope.rules.captured_steps.training import Training
from gradscope.rules.context import RuleContext

_FIRST = 4
"""So many looks are judged in any case: training goes wrong at its start, if it does."""
_MOST = 12
"""So many are judged at most, and the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A look with its surroundings, ready for the rules."""

    context: RuleContext
    step: int
    """Step of the run."""
    stands_for: int
    """Number of captured steps that this one represents: itself, and later ones with equal counts.
    """


@dataclass(frozen=True)
class Series:
    """The looks at one backward of the script, in their order."""

    sights: tuple[Sight, ...]
    training: Training
    is_late: bool = False
    """Whether their forwards were not watched, so that most of what rules ask for is missing."""

    @property
    def is_untrained(self) -> bool:
        """Whether no step follows any of them, nor any other backward of the run.

        What ends in an exception may have been on its way to a step.
        """
        return self.training.is_untrained and not _has_raised(self.sights[0])

    @cached_property
    def judged(self) -> tuple[JudgedStep, ...]:
        """Those that are judged."""
        whole = [
            position for position, one in enumerate(self.sights) if one.captured.same_as is None
        ]
        chosen = _chosen([_state(sight) for sight in self.sights], whole[-1:])
        ends = [*chosen[1:], len(self.sights)]
        return tuple(
            JudgedStep(
                context=self._case(position),
                step=self.sights[position].captured.step,
                stands_for=end - position,
            )
            for position, end in zip(chosen, ends, strict=True)
        )

    def _case(self, position: int) -> RuleContext:
        sight = self.sights[position]
        # Without a step between them, another backward says nothing about what lasts.
        later = () if self.is_untrained else self.sights[position + 1 :]
        return RuleContext(
            composed(sight, later, self.training),
            run=self.training.surroundings(sight.captured),
            step=sight.captured.step,
            measurements=self.training.context.measurements,
        )


def series_of(training: Training) -> tuple[Series, ...]:
    """Return the looks of a run by the line of their backward.

    What raised stands alone, and so does what was captured after its forward. Where nothing is
    trained, looks at different models are no continuation of each other.
    """
    groups: dict[tuple[object, bool, bool, object], list[Sight]] = {}
    for captured in training.recording.captured_steps:
        sight = Sight(captured)
        model = sight.reached if training.is_untrained else None
        is_late = bool(captured.recording.evidence_of(LateCapture))
        key = (training.line(captured), _has_raised(sight), is_late, model)
        groups.setdefault(key, []).append(sight)
    return tuple(
        Series(tuple(sights), training, is_late=is_late)
        for (_, _, is_late, _), sights in groups.items()
    )


def _has_raised(sight: Sight) -> bool:
    return bool(sight.recording.evidence_of(AutogradErrorRecord))


def _chosen(states: Sequence[object], wanted: Collection[int]) -> list[int]:
    """Return the places of the looks to judge: the first ones, those that differ, and the last.

    Args:
        states: What looks that are judged by themselves differ in.
        wanted: Places that are chosen besides, as the last look that was measured in full.
    """
    seen: set[object] = set()
    chosen: list[int] = []
    for position, state in enumerate(states):
        is_new = state not in seen
        seen.add(state)
        is_last = position == len(states) - 1 or position in wanted
        if position < _FIRST or (is_new and len(chosen) < _MOST) or is_last:
            chosen.append(position)
    return chosen


def _state(sight: Sight) -> object:
    """Return what is another where a look is worth judging by itself."""
    is_whole = sight.captured.same_as is None
    return (sight.graph, *_numbers(sight), *(_counts(sight) if is_whole else ()))


def _numbers(sight: Sight) -> Iterator[object]:
    recording = sight.recording
    step = sight.step
    yield step is None or step.loss is None or math.isfinite(step.loss)
    yield tuple(
        (stat.reach, bool(stat.gradient and stat.gradient.is_broken))
        for stat in recording.parameter_stats
    )


def _counts(sight: Sight) -> Iterator[object]:
    recording = sight.recording
    yield tuple(record.requires_grad for record in recording.parameters)
    yield tuple(int(10 * one.inactive / one.units) for one in recording.evidence_of(UnitRecord))
    yield tuple(
        2 * one.saturated >= one.elements for one in recording.evidence_of(SaturationRecord)
    )
    yield tuple(
        10 * one.flushed // max(one.elements, 1) for one in recording.evidence_of(FlushRecord)
    )
    yield tuple(
        (one.class_name, len(one.parameters), len(one.stale))
        for one in recording.evidence_of(OptimizerRecord)
    )
    yield len(recording.evidence_of(NonfiniteRecord))
