"""Groups similar ranks of a large job, so that rules judge one of each group."""

import math

from gradscope.analysis.job import Rank
from gradscope.recording.records import Recording

Kind = tuple[object, ...]


def kind_of(recording: Recording) -> Kind:
    """Return the properties that a rank shares with others of its kind.

    These are its ending, its numbers of steps and passes, the kinds and lines of its events,
    whether its losses and norms stay finite, and which numbers it lacks.
    """
    rank = Rank(recording)
    ending = rank.ending
    losses = [step.loss for step in recording.steps if step.loss is not None]
    return (
        None if ending is None else (ending.kind, ending.exception, ending.file, ending.line),
        rank.step_count,
        rank.backward_count,
        frozenset((event.kind, rank.site(event.site)) for event in recording.events),
        frozenset((kind, event.site) for kind, found in rank.events.items() for event in found),
        all(map(math.isfinite, losses)),
        all(math.isfinite(v) for values in rank.numbers.values() for v in values if v is not None),
        frozenset(record.reason for record in recording.skipped),
        tuple(parameter.name for parameter in recording.parameters),
    )
