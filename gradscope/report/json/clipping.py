"""Shapes of what clipping does."""

from typing import Annotated

from gradscope.analysis.clipping.limits import Advice as AdviceFacts
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.report import Report
from gradscope.recording.evidence.training import ClipMethod, OptimizerFamily
from gradscope.report.json.parts import Where
from gradscope.report.json.run import each
from gradscope.report.json.shape import INLINE, Count, Of, Shape


class Trial(Shape, grows=True):
    """How a target's gradients were measured; null of a run."""

    max_norm: float | None
    norm_type: float
    clip_value: Annotated[float, Of("value")]
    agc: Annotated[float, Of("adaptive_ratio")]
    asked: tuple[ClipMethod, ...]
    applied: ClipMethod | None
    steps: Count
    batches: Count


def _effective(section: Section, _: Report) -> float | None:
    """Return the effective learning rate of the clip; None if it does not change it."""
    rate, coefficients = section.optimizer.rate, section.coefficients
    if rate is None or coefficients is None or section.optimizer.family == "adaptive":
        return None
    return rate * coefficients.mean


class ClipOptimizer(Shape, grows=True):
    """The optimizer that uses the clipped gradients."""

    title: Annotated[str, Of("optimizer.title")]
    family: Annotated[OptimizerFamily, Of("optimizer.family")]
    learning_rate: Annotated[float | None, Of("optimizer.rate")]
    effective_learning_rate: Annotated[
        float | None,
        Of(_effective),
        "Times the mean coefficient; null of optimizers that divide by the size of gradients.",
    ]


def _quantile(position: int) -> Of:
    return Of(lambda distribution, _: distribution.quantiles[position])


class Distribution(Shape, grows=True):
    """Statistics of finite numbers."""

    count: Count
    min: Annotated[float, Of("least")]
    p25: Annotated[float, _quantile(0)]
    p50: Annotated[float, _quantile(1)]
    p75: Annotated[float, _quantile(2)]
    p90: Annotated[float, _quantile(3)]
    p95: Annotated[float, _quantile(4)]
    p99: Annotated[float, _quantile(5)]
    max: Annotated[float, Of("greatest")]
    mean: float


class Bin(Shape, grows=True):
    """A bar of a histogram."""

    low: float
    high: float
    count: Count


class SweepRow(Shape, grows=True):
    """What another limit would clip."""

    max_norm: Annotated[float, Of("limit")]
    share: float
    mean_coefficient: Annotated[float, Of("mean")]
    mean_coefficient_of_cut: Annotated[float | None, Of("mean_cut")]
    is_given: Annotated[bool, Of(lambda row, _: "given" in row.mark)]
    is_advised: Annotated[bool, Of(lambda row, _: "auto" in row.mark)]


def _first_median(advice: AdviceFacts, _: Report) -> float | None:
    return advice.level.first if advice.level.settled else None


class Advice(Shape, grows=True):
    """The largest norm that is advised."""

    max_norm: Annotated[float, Of("limit")]
    share: float
    median: Annotated[float, Of("level.median")]
    median_absolute_deviation: Annotated[float, Of("level.deviation")]
    norms: Annotated[Count, Of("level.count")]
    first_norms_left_out: Annotated[Count, Of("level.settled")]
    median_of_these: Annotated[float | None, Of(_first_median)]
    still_moves: Annotated[bool, Of("level.still_moves")]
    is_sure: bool


class Contribution(Shape, grows=True):
    """A share of the norm's power."""

    share: float
    largest_share: Annotated[float, Of("largest")]
    largest_in: Annotated[float, Of("leads")]
    norm_before: Annotated[float, Of("before")]
    norm_after: Annotated[float | None, Of("after")]


class ParameterContribution(Shape, grows=True):
    """The share of a parameter."""

    parameter: Annotated[str, Of("name")]
    contribution: Annotated[Contribution, INLINE, Of()]


class ModuleContribution(Shape, grows=True):
    """The share of a module."""

    module: Annotated[str, Of("name")]
    contribution: Annotated[Contribution, INLINE, Of()]


class Method(Shape, grows=True):
    """What another way to clip would do."""

    method: ClipMethod
    call: Annotated[str, Of("text")]
    limit: float
    is_asked: bool
    share: float
    median_norm_after: Annotated[float, Of("after")]
    mean_coefficient: Annotated[float, Of("coefficient")]
    median_cosine: Annotated[float | None, Of("cosine")]
    least_cosine: Annotated[float | None, Of("worst")]


class ClipCheck(Shape, grows=True):
    """Whether the script's clip is right in one respect."""

    is_right: bool
    message: Annotated[str, Of("text")]


class Points(Shape, grows=True):
    """One number a gradient, all in the same order."""

    step: Annotated[tuple[Count, ...], each("step")]
    norm: Annotated[tuple[float, ...], each("norm")]
    coefficient: Annotated[tuple[float, ...], each("coefficient")]
    cosine: Annotated[tuple[float | None, ...], each("cosine")]


class ClipSeries(Shape, grows=True):
    """Gradients before and after a clip."""

    call: Annotated[str, Of("text")]
    location: Where
    method: Annotated[ClipMethod | None, "Null where nothing clips."]
    limit: float | None
    limits: Annotated[
        tuple[float, float] | None, "The least and the largest, where the limit changes."
    ]
    is_advised: Annotated[bool, "Whether the limit is the one advised here, and not the user's."]
    norm_type: float
    optimizer: Annotated[ClipOptimizer, Of()]
    measured: Annotated[Count, Of(lambda section, _: len(section.points)), "Number of gradients."]
    nonfinite: Annotated[
        tuple[Count, ...],
        Of(lambda section, _: [point.step for point in section.broken]),
        "The steps whose norm is NaN or infinite.",
    ]
    cut: Annotated[Count, Of(lambda section, _: len(section.cut))]
    cut_share: float
    norms: Annotated[Distribution | None, "Before clipping."]
    histogram: Annotated[tuple[Bin, ...], Of("bins")]
    coefficients: Annotated[Distribution | None, "What is left of each norm."]
    cosines: Annotated[Distribution | None, "Between all gradients before and after."]
    sweep: tuple[SweepRow, ...]
    advice: Advice | None
    parameters: Annotated[
        tuple[ParameterContribution, ...],
        Of("contributions.parameters"),
        "Shares of the norm's power, the largest first.",
    ]
    modules: Annotated[tuple[ModuleContribution, ...], Of("contributions.modules")]
    methods: tuple[Method, ...]
    checks: Annotated[tuple[ClipCheck, ...], "Whether the script's clip stands where it should."]
    obstacle: Annotated[str, Of("failure"), "Why torch's function refuses these gradients."]
    points: Points


class Clipping(Shape, grows=True):
    """What clipping does to the gradients, or would do."""

    trial: Trial | None
    series: Annotated[tuple[ClipSeries, ...], Of("sections")]
