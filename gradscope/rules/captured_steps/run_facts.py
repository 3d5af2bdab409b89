"""What the events of a whole run tell, whichever backward is judged."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from gradscope.recording.events import BackwardEvent, Event, StepEvent, only


class RunFacts(NamedTuple):
    """Facts on the backward passes and the steps of a run."""

    has_one_line: bool
    """Whether every backward is of the same line."""
    has_one_backward: bool
    """Whether every step is fed by one backward."""
    are_gradients_assigned: bool
    """Whether an optimizer steps with fresh gradients of which no backward is known."""
    last_sound_step: int
    """The last step with finite gradients; -1 without one."""
    rates: Mapping[int, float]
    """By optimizer: the largest learning rate of its steps."""


def facts_of(events: Sequence[Event]) -> RunFacts:
    """Return the facts of a run."""
    steps = list(only(StepEvent, events))
    rates: dict[int, float] = {}
    for step in steps:
        if step.optimizer is not None and step.lr is not None:
            rates[step.optimizer] = max(rates.get(step.optimizer, 0.0), step.lr)
    sound = (one.step for one in steps if not one.nonfinite and isfinite(one.norm or 0.0))
    return RunFacts(
        has_one_line=len({one.site for one in only(BackwardEvent, events)}) <= 1,
        has_one_backward=all((one.backwards or 0) <= 1 for one in steps),
        are_gradients_assigned=any(
            one.fresh and one.backwards == 0 and not one.manual for one in steps
        ),
        last_sound_step=max(sound, default=-1),
        rates=rates,
    )
