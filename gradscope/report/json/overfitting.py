"""Shapes of a training on one batch."""

from collections.abc import Iterator
from typing import Annotated

from gradscope.analysis.losses.overfitting import Outcome
from gradscope.analysis.losses.overfitting import Overfit as Facts
from gradscope.analysis.report import Report
from gradscope.report.json.shape import Count, Of, Positive, Shape


def _still(found: Facts, report: Report) -> list[str]:
    return [report.recording.parameters[index].name for index in found.still]


def _moved(found: Facts, report: Report) -> Iterator[tuple[str, float | None]]:
    names = (parameter.name for parameter in report.recording.parameters)
    return zip(names, found.record.moved, strict=True)


class Overfit(Shape, grows=True):
    """A training on one batch, undone afterwards."""

    outcome: Annotated[Outcome, "Result of the training."]
    steps: Annotated[Count, "Optimizer steps made."]
    wanted_steps: Annotated[Positive, Of("record.wanted"), "Largest number of steps."]
    optimizer: Annotated[str, Of("record.optimizer")]
    learned_share: Annotated[
        float,
        Of("record.learned"),
        "Share of the first loss at which the batch counts as learned.",
    ]
    losses: Annotated[
        tuple[float, ...], Of("record.losses"), "Loss before each step, and after the last."
    ]
    stuck_since: Annotated[
        int | None, Of("since"), "Step after which the loss made no progress; null unless stuck."
    ]
    unmoved: Annotated[
        tuple[str, ...], Of(_still), "Parameters that require grad and did not move."
    ]
    moved: Annotated[
        dict[str, float | None],
        Of(_moved),
        "Distance that each parameter moved over the norm it had; null if it requires no grad.",
    ]
