"""Shapes of the logits before softmaxes, and of the routers of mixtures of experts."""

import math
from typing import Annotated

from gradscope.analysis.attention import LogitPoint
from gradscope.recording.evidence.forward import LogitKind
from gradscope.report.json.parts import Location
from gradscope.report.json.shape import Count, Of, Positive, Shape


def _log_z(point: LogitPoint, _: object) -> float | None:
    return None if math.isnan(point.log_normaliser) else point.log_normaliser


class LogitStep(Shape, grows=True):
    """Logits in one step."""

    step: Count
    largest: Annotated[
        tuple[float, ...], "Largest magnitude of the logits by head, or one number for all."
    ]
    log_z: Annotated[
        float | None,
        Of(_log_z),
        "Mean logarithm of the softmax's denominator; null for attention.",
    ]


class Logits(Shape, grows=True):
    """The logits that one line takes in one module."""

    kind: Annotated[LogitKind, "Attention scores, or the outputs before a cross-entropy."]
    module: str
    location: Annotated[Location | None, Of("site")]
    steps: Annotated[tuple[LogitStep, ...], Of("points"), "By captured step."]


class RouterStep(Shape, grows=True):
    """The choices of a router in one step."""

    step: Count
    rows: Annotated[Count, "Rows, such as tokens, that chose."]
    shares: Annotated[tuple[float, ...], "Share of all choices, by expert."]
    entropy: Annotated[
        float, "Mean entropy of a row's scores, relative to that of equal scores, 0 to 1."
    ]


class Experts(Shape, grows=True):
    """A choice of experts on one line in one module."""

    module: str
    location: Annotated[Location | None, Of("site")]
    chosen: Annotated[Positive, "Experts chosen per row."]
    experts: Annotated[Positive, "Number of experts."]
    balance: Annotated[
        float, "Entropy of the last step's shares, relative to equal shares: 1 if all are equal."
    ]
    steps: Annotated[tuple[RouterStep, ...], Of("points"), "By captured step."]
