"""The captured steps of one backward of the script, and which of them are judged."""

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
"""Number of first captured steps that are always judged: most trainings go wrong at the start."""
_MOST = 12
"""Largest number of captured steps that are judged, besides the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A captured step with its context, ready for the rules."""

    context: RuleContext
    step: int
    """Step of the run."""
    stands_for: int
    """Number of captured steps that this one represents: itself, and later ones with equal counts.
    """


@dataclass(frozen=True)
class Series:
    """The captured steps of one backward of the script, in order."""

    sights: tuple[Sight, ...]
    training: Training
    is_late: bool = False
    """Whether their forwards were not observed. Most of what rules read is missing then."""

    @property
    def is_untrained(self) -> bool:
        """Whether no optimizer step follows any backward of the run.

        A backward that raised may have been meant for a step.
        """
        return self.training.is_untrained and not _has_raised(self.sights[0])

    @cached_property
    def judged(self) -> tuple[JudgedStep, ...]:
        """The captured steps that are judged."""
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
    """Return the captured steps of a run, grouped by the line of their backward.

    Steps that raised are a series of their own, and so are those captured after their forward. If
    nothing is trained, captured steps of different models do not continue each other.
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
    """Return the positions of the captured steps to judge: the first, those that differ, the last.

    Args:
        states: State of each captured step. A step with a new state is judged separately.
        wanted: Further positions to choose, such as that of the last step measured in full.
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
    """Return a value that differs for captured steps that have to be judged separately."""
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
