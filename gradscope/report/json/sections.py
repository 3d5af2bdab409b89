"""Shapes of sections of a report: accumulation, attention and ranks."""

import math
from collections.abc import Iterator
from typing import Annotated

from gradscope.analysis.attention import LogitPoint
from gradscope.analysis.ranks.job import RankState
from gradscope.analysis.report import Report
from gradscope.recording.evidence.batches import (
    AccumulatedGradient as GradientRecord,
)
from gradscope.recording.evidence.batches import AccumulationLaw, Obstruction
from gradscope.recording.evidence.forward import LogitKind
from gradscope.recording.records import Site
from gradscope.report.documents.accumulation import Accumulation as Facts
from gradscope.report.json.parts import Location, Where
from gradscope.report.json.shape import Count, Given, Min, Of, Positive, Shape


class MicroBatch(Shape, grows=True):
    """A part of the batch."""

    rows: Positive
    loss: float
    finite: Annotated[bool, Of("is_finite")]
    count: Annotated[float, "Number of items of the unit; number of rows without a unit."]
    weight: Annotated[float | None, "What its loss is to be multiplied by."]


class AccumulatedGradient(Shape, grows=True):
    """A parameter's accumulated gradient compared with the full batch's."""

    norm: Annotated[float, "Norm of the full batch's gradient."]
    scale: float
    deviation: float
    remaining: float


def _modules(found: Facts, _: Report) -> list[str]:
    return [found.recording.modules[position].path for position in found.record.modules]


def _site(found: Facts, _: Report) -> Site | None:
    site = found.record.site
    return None if site is None else found.recording.sites[site]


def _by_name(found: Facts, _: Report) -> Iterator[tuple[str, GradientRecord]]:
    return ((found.name(one), one) for one in found.parameters)


class Accumulation(Shape, grows=True):
    """How the gradients of micro-batches add up."""

    micro_batches: Annotated[int, Min(2), Of("record.micro_batches")]
    rows: Annotated[Positive, Of("record.rows"), "Examples in the full batch."]
    repeated: Annotated[
        tuple[str, ...], Of("record.repeated"), "Parts of the batch without a batch dimension."
    ]
    loss: Annotated[float, Of("record.loss"), "Loss of the full batch."]
    law: Annotated[
        AccumulationLaw,
        Of("record.law"),
        "How the micro-batches' gradients have to be weighed to give the full batch's: as they "
        "are; each by 1/K; by counts of a unit; by weights that no count explains; or no weights "
        "do it.",
    ]
    unit: Annotated[str | None, Of("record.unit"), "What the counts of the parts are of."]
    obstruction: Annotated[
        Obstruction | None, Of("record.obstruction"), "Why there are no such weights."
    ]
    modules: Annotated[
        tuple[str, ...],
        Of(_modules),
        "Paths of the modules that normalise by statistics of the batch.",
    ]
    location: Annotated[Location | None, Of(_site), "The line that lets examples meet."]
    law_in_eval_mode: Annotated[
        AccumulationLaw | None,
        Of("record.apart"),
        "The law with batch normalisation, and what is random, switched off; null where that was "
        "not tried.",
    ]
    draws: Annotated[Count, Of("record.draws"), "Draws of random numbers by the full batch."]
    unmatched_draws: Annotated[
        Count, Of("record.unmatched"), "Random draws that the micro-batches could not reuse."
    ]
    scale: Annotated[
        float, Of("record.scale"), "Scale of the sum, projected on the full batch's gradient."
    ]
    cosine: Annotated[float, Of("record.cosine")]
    deviation: Annotated[
        float,
        Of("record.deviation"),
        "Norm of the sum less the full batch's gradient, over the norm of that.",
    ]
    deviation_divided: Annotated[
        float,
        Of("record.divided"),
        "The same of the sum divided by the number of micro-batches.",
    ]
    remaining: Annotated[
        float,
        Of("record.remaining"),
        "The same of the sum by the law's weights, or by the best there are.",
    ]
    parts: tuple[MicroBatch, ...]
    parameters: Annotated[
        dict[str, AccumulatedGradient],
        Of(_by_name),
        "By name; NaN where gradients are too small to be compared.",
    ]


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


class Rank(Shape):
    """A rank."""

    rank: Count
    local_rank: int | None
    host: str
    state: Annotated[
        RankState,
        "consequence: it failed because another rank did not answer; lost: it has no ending.",
    ]
    ended: Annotated[str, Of("what")]
    location: Where
    steps: int
    backward_passes: Annotated[int, Of("passes")]
    loss: float | None


class GlobalNorm(Shape):
    """A global norm."""

    step: int
    norm: float
    partial: Annotated[tuple[str, ...], "Parameters left out, as each rank holds a term of a sum."]


class FirstFailure(Shape):
    """The rank that failed first."""

    rank: int
    what: str
    location: Where


class Ranks(Shape):
    """A distributed job, as far as its ranks were recorded."""

    world_size: Annotated[Positive, "Number of ranks, recorded or not."]
    backend: str
    strategy: Annotated[Given, "How the model is spread, as DDP."]
    recorded: Annotated[tuple[Rank, ...], Of("rows"), "The recorded ranks, by number."]
    missing: Annotated[tuple[int, ...], "Ranks without a recording."]
    global_norms: Annotated[
        tuple[GlobalNorm, ...],
        Of("norms"),
        "Gradient norms joined from all ranks: sharded parameters add up, replicated ones count "
        "once.",
    ]
    sharded_parameters: Annotated[int, Of("sharded")]
    is_joined: Annotated[
        bool,
        Of("is_joinable"),
        "Whether norms of sharded parameters are joined from all ranks. Otherwise they are of "
        "the part that the first recorded rank holds.",
    ]
    first_failure: Annotated[FirstFailure | None, Of("failure")]
